# Net::STOMP. Prints a line of the Test Anything Protocol for each step.
use strict;
use warnings;
use utf8;
use Encode qw(encode decode);
use Log::Any::Adapter;
use Net::Stomp;

$| = 1;

sub connected {
    my $client = Net::Stomp->new({ hostname => '127.0.0.1', port => $ENV{STOMP_PORT}, timeout => 20, receipt_timeout => 20 });
    my $frame = $client->connect({ 'accept-version' => '1.0', host => 'localhost' });
    die $frame->command unless $frame->command eq 'CONNECTED';
    return $client;
}

sub next_of {
    my ($client) = @_;
    return $client->receive_frame({ timeout => 20 }) // die "no message\n";
}

sub equal {
    my ($is, $wanted) = @_;
    die "$is instead of $wanted\n" unless $is eq $wanted;
}

sub step {
    my ($name, $body) = @_;
    if (eval { $body->(); 1 }) {
        print "ok - $name\n";
    } else {
        my ($first) = split /\n/, $@;
        print "not ok - $name # $first\n";
    }
}

my $client;
step('connect', sub { $client = connected() });
step('send with a receipt', sub {
    $client->send_with_receipt({ destination => '/queue/pl.a', color => 'red', body => encode('UTF-8', 'päper') }) or die "no receipt\n";
});
step('subscribe with a selector', sub {
    $client->send({ destination => '/queue/pl.a', color => 'blue', body => 'no' });
    $client->send({ destination => '/queue/pl.a', 'amount;type=int' => 5, body => '5' });
    $client->subscribe({ destination => '/queue/pl.a', id => '1', selector => "color = 'red' OR amount > 4" });
    equal(join(' ', decode('UTF-8', next_of($client)->body), next_of($client)->body), 'päper 5');
    $client->unsubscribe({ destination => '/queue/pl.a', id => '1' });
});
step('acknowledge', sub {
    $client->send({ destination => '/queue/pl.b', body => $_ }) for 1 .. 3;
    my $first = connected();
    $first->subscribe({ destination => '/queue/pl.b', id => '1', ack => 'client-individual' });
    my @messages = map { next_of($first) } 1 .. 3;
    $first->ack({ frame => $messages[1] });
    $first->disconnect;
    $client->subscribe({ destination => '/queue/pl.b', id => '2', ack => 'client' });
    my ($one, $three) = (next_of($client), next_of($client));
    equal(join(' ', $one->body, $one->headers->{redelivered}, $three->body), '1 true 3');
    $client->ack({ frame => $three });    # cumulative
    $client->unsubscribe({ destination => '/queue/pl.b', id => '2' });
});
step('return a message', sub {
    $client->send({ destination => '/queue/pl.c', body => 'x' });
    $client->subscribe({ destination => '/queue/pl.c', id => '3', ack => 'client-individual' });
    $client->nack({ frame => next_of($client) });
    my $again = next_of($client);
    equal(join(' ', $again->body, $again->headers->{redelivered}), 'x true');
    $client->ack({ frame => $again });
    $client->unsubscribe({ destination => '/queue/pl.c', id => '3' });
});
step('commit and abort', sub {
    $client->send_transactional({ destination => '/queue/pl.d', body => $_ }) or die "not committed\n" for 1 .. 2;
    $client->subscribe({ destination => '/queue/pl.d', id => '4' });
    equal(join(' ', map { next_of($client)->body } 1 .. 2), '1 2');
});
step('a wrong selector is an ERROR with the place', sub {
    $client->subscribe({ destination => '/queue/pl.a', id => '5', selector => 'amount >' });
    my $frame = next_of($client);
    equal($frame->command, 'ERROR');
    die $frame->body unless index($frame->body, '^') >= 0;
});
