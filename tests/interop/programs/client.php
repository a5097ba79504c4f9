<?php
// php-stomp. Prints a line of the Test Anything Protocol for each step.

function connected(): Stomp
{
    $client = new Stomp("tcp://127.0.0.1:" . getenv("STOMP_PORT"), null, null, ["accept-version" => "1.0", "host" => "localhost"]);
    $client->setReadTimeout(20);
    return $client;
}

function next_of(Stomp $client): StompFrame
{
    $frame = $client->readFrame();
    if (!$frame) {
        throw new Exception("no message: " . $client->error());
    }
    return $frame;
}

function equal(mixed $is, mixed $wanted): void
{
    if ($is !== $wanted) {
        throw new Exception(json_encode($is) . " instead of " . json_encode($wanted));
    }
}

function step(string $name, callable $body): void
{
    try {
        $body();
        echo "ok - $name\n";
    } catch (Throwable $error) {
        echo "not ok - $name # {$error->getMessage()}\n";
    }
}

step("connect", function () use (&$client) {
    $client = connected();
    equal(strlen($client->getSessionId()) > 0, true);
});
step("send with a receipt", function () use (&$client) {
    equal($client->send("/queue/php.a", "päper", ["color" => "red", "receipt" => "r1"]), true);
});
step("subscribe with a selector", function () use (&$client) {
    $client->send("/queue/php.a", "no", ["color" => "blue"]);
    $client->send("/queue/php.a", "5", ["amount;type=int" => "5"]);
    $client->subscribe("/queue/php.a", ["ack" => "auto", "selector" => "color = 'red' OR amount > 4"]);
    equal([next_of($client)->body, next_of($client)->body], ["päper", "5"]);
    $client->unsubscribe("/queue/php.a");
});
step("acknowledge", function () use (&$client) {
    foreach (["1", "2", "3"] as $body) {
        $client->send("/queue/php.b", $body, ["receipt" => "b$body"]);
    }
    $first = connected();
    $first->subscribe("/queue/php.b", ["ack" => "client-individual"]);
    $messages = [next_of($first), next_of($first), next_of($first)];
    $first->ack($messages[1], ["receipt" => "r2"]);
    unset($first);
    $client->subscribe("/queue/php.b", ["ack" => "client"]);
    [$one, $three] = [next_of($client), next_of($client)];
    equal([$one->body, $one->headers["redelivered"], $three->body], ["1", "true", "3"]);
    equal($client->ack($three, ["receipt" => "r3"]), true); // cumulative
    $client->unsubscribe("/queue/php.b");
});
step("commit and abort", function () use (&$client) {
    $client->begin("t1");
    $client->send("/queue/php.d", "aborted", ["transaction" => "t1"]);
    $client->abort("t1");
    $client->begin("t2");
    $client->send("/queue/php.d", "1", ["transaction" => "t2"]);
    $client->send("/queue/php.d", "2", ["transaction" => "t2"]);
    equal($client->commit("t2", ["receipt" => "r4"]), true);
    $client->subscribe("/queue/php.d", ["ack" => "auto"]);
    equal([next_of($client)->body, next_of($client)->body], ["1", "2"]);
});
step("a wrong selector is an ERROR with the place", function () use (&$client) {
    try {
        equal($client->subscribe("/queue/php.a", ["selector" => "amount >", "receipt" => "r5"]), false);
        throw new Exception($client->error());
    } catch (Throwable $error) {
        equal(str_contains($error->getMessage(), "selector"), true);
    }
});
