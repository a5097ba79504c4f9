package sievemq_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	sievemq "sievemq-testing"
)

const soon = 10 * time.Second

func TestMain(m *testing.M) { os.Exit(sievemq.Main(m)) }

func dial(t *testing.T, ns *sievemq.Namespace) *amqp.Session {
	t.Helper()
	options := &amqp.ConnOptions{HostName: ns.VHost, SASLType: amqp.SASLTypeAnonymous()}
	connection, err := amqp.Dial(t.Context(), ns.AMQP, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	session, err := connection.NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func send(t *testing.T, ns *sievemq.Namespace, body string, properties map[string]any) error {
	t.Helper()
	sender, err := dial(t, ns).NewSender(t.Context(), "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	message := &amqp.Message{Value: body, ApplicationProperties: properties}
	return sender.Send(t.Context(), message, nil)
}

// takeOrders is the application: where handle cannot handle an order, it is redelivered.
func takeOrders(ctx context.Context, receiver *amqp.Receiver, handle func(*amqp.Message) error) {
	for {
		order, err := receiver.Receive(ctx, nil)
		if err != nil {
			return
		}
		if handle(order) == nil {
			err = receiver.AcceptMessage(ctx, order)
		} else {
			err = receiver.ModifyMessage(ctx, order, &amqp.ModifyMessageOptions{DeliveryFailed: true})
		}
		if err != nil {
			return
		}
	}
}

func TestAnOrderThatFailsIsRedeliveredAfterAMinute(t *testing.T) {
	ns := sievemq.Open(t)
	ns.Policy("orders", sievemq.Given{"max_attempts": 2, "redelivery_delay": 60_000})
	ns.Freeze()
	receiver, err := dial(t, ns).NewReceiver(t.Context(), "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	attempts := make(chan uint32, 9)
	go takeOrders(t.Context(), receiver, func(order *amqp.Message) error {
		attempts <- order.Header.DeliveryCount
		return fmt.Errorf("out of chairs")
	})
	if err := send(t, ns, "a chair", map[string]any{"region": "EU"}); err != nil {
		t.Fatal(err)
	}

	orders := sievemq.Given{"destination": "orders", "selector": "region = 'EU'", "count": 1}
	ns.Assert("scheduled", orders, soon)
	if first := <-attempts; first != 0 {
		t.Errorf("the first attempt has the count %d", first)
	}
	ns.Assert("dead_letters", sievemq.Given{"destination": "orders", "count": 0}, 0)
	ns.Advance(time.Minute)
	letters := ns.Assert("dead_letters", sievemq.Given{"destination": "orders", "count": 1, "reason": "attempts"}, soon)
	if second := <-attempts; second != 1 || letters[0].Text != "a chair" {
		t.Errorf("the second attempt of %q has the count %d", letters[0].Text, second)
	}
}

func TestASendWhoseAnswerIsLost(t *testing.T) {
	ns := sievemq.Open(t)
	ns.Fault(sievemq.Given{"fault": "drop", "on": "send", "after": true})
	if send(t, ns, "a chair", nil) == nil {
		t.Error("nobody has noticed")
	}
	ns.Assert("received", sievemq.Given{"destination": "orders", "count": 1}, 0)
}

// failing is a test that fails, and what it logs.
type failing struct {
	testing.TB
	text     strings.Builder
	cleanups []func()
}

func (f *failing) Helper()                {}
func (f *failing) Failed() bool           { return true }
func (f *failing) Cleanup(cleanup func()) { f.cleanups = append(f.cleanups, cleanup) }
func (f *failing) Log(values ...any)      { fmt.Fprintln(&f.text, values...) }
func (f *failing) Fatal(values ...any) {
	f.Log(values...)
	runtime.Goexit()
}

func TestAFailingTestSaysWhyAMessageWasNotDelivered(t *testing.T) {
	fails := &failing{TB: t}
	done := make(chan bool)
	go func() {
		defer close(done)
		defer func() {
			for _, cleanup := range fails.cleanups {
				cleanup()
			}
		}()
		ns := sievemq.Open(fails)
		filter := amqp.NewSelectorFilter("amount > 100")
		options := &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{filter}}
		if _, err := dial(t, ns).NewReceiver(t.Context(), "orders", options); err != nil {
			fails.Fatal(err)
		}
		if err := send(t, ns, "a chair", map[string]any{"amount": 90}); err != nil {
			fails.Fatal(err)
		}
		ns.Assert("consumed", sievemq.Given{"destination": "orders"}, 0)
	}()
	<-done
	for _, wanted := range []string{"should have been consumed", "amount > 100 is FALSE (amount is 90"} {
		if !strings.Contains(fails.text.String(), wanted) {
			t.Errorf("%q is not in: %s", wanted, fails.text.String())
		}
	}
}
