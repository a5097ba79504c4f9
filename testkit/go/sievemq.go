// Package sievemq is a SieveMQ broker for tests: a namespace for each, the broker's clock, faults, assertions that wait,
// and the reasons why a message was not delivered.
//
//	func TestMain(m *testing.M) { os.Exit(sievemq.Main(m)) }
//
//	func TestAnOrderIsShipped(t *testing.T) {
//		ns := sievemq.Open(t)
//		// … the application, with ns.AMQP and ns.VHost
//		ns.Advance(time.Minute)
//		ns.Assert("received", sievemq.Given{"destination": "shipments", "count": 1}, 5*time.Second)
//	}
//
// SIEVEMQ_HTTP_URL names a broker that runs already with test control. Without it Main starts `sievemq broker
// --test-control`, and SIEVEMQ_COMMAND says by which command.
package sievemq

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Given is what a fault or an assertion takes, by the names of the API.
type Given map[string]any

// Message is one that an assertion was about.
type Message struct {
	MessageID  string         `json:"message_id"`
	Properties map[string]any `json:"properties"`
	Text       string         `json:"text"`
}

// Namespace holds the queues and topics of one test.
type Namespace struct {
	Name  string
	AMQP  string // URL of the broker for AMQP clients
	STOMP string // host:port of the broker for STOMP clients
	VHost string // hostname of an AMQP client's open, host of a STOMP client's CONNECT
	t     testing.TB
	path  string
}

var base = os.Getenv("SIEVEMQ_HTTP_URL")

// Main runs the tests of a package with a broker. Its result is the exit code.
func Main(m *testing.M) int {
	if base == "" {
		command := strings.Fields(os.Getenv("SIEVEMQ_COMMAND") + " ")
		if len(command) == 0 {
			command = []string{"sievemq"}
		}
		options := append(command[1:], "broker", "--test-control", "--port", "0", "--http-port", "0")
		broker := exec.Command(command[0], options...)
		broker.Stderr = os.Stderr
		output, err := broker.StdoutPipe()
		if err == nil {
			err = broker.Start()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "sievemq:", err)
			return 1
		}
		defer broker.Wait()
		defer broker.Process.Kill()
		lines := bufio.NewScanner(output)
		for base == "" && lines.Scan() {
			var record struct {
				Event string
				URL   string `json:"http_url"`
			}
			if json.Unmarshal(lines.Bytes(), &record) == nil && record.Event == "broker.ready" {
				base = record.URL
			}
		}
		go io.Copy(io.Discard, output)
	}
	return m.Run()
}

// Open makes a namespace for a test. After the test the clock is the machine's again and the namespace is gone; if the
// test has failed, its log says what happened in the namespace, and why messages were not delivered.
func Open(t testing.TB) *Namespace {
	t.Helper()
	var opened struct {
		Name  string
		AMQP  string `json:"amqp_url"`
		STOMP string `json:"stomp_url"`
	}
	ns := &Namespace{t: t, path: "/namespaces"}
	ns.ask("POST", "", Given{}, &opened)
	at := func(text string) string {
		found, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return found.Host
	}
	ns.Name, ns.VHost, ns.path = opened.Name, "/"+opened.Name, "/namespaces/"+url.PathEscape(opened.Name)
	ns.AMQP, ns.STOMP = "amqp://"+at(opened.AMQP), at(opened.STOMP)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("\n" + ns.Explanation())
		}
		ns.clock("restore", nil)
		ns.ask("DELETE", "", nil, nil)
	})
	return ns
}

// Advance moves the broker's clock; what is due by then has happened when it returns.
func (ns *Namespace) Advance(by time.Duration) { ns.clock("advance", Given{"ms": by.Milliseconds()}) }

// Freeze stops the broker's clock until it is advanced, or the test ends.
func (ns *Namespace) Freeze() { ns.clock("freeze", nil) }

// Policy changes rules of a destination, such as {"max_attempts": 2, "redelivery_delay": 60000}.
func (ns *Namespace) Policy(destination string, rules Given) {
	ns.ask("POST", "/policies", Given{"destination": destination, "rules": rules}, nil)
}

// Fault requests a fault, such as {"fault": "drop", "on": "send", "after": true}.
func (ns *Namespace) Fault(fault Given) { ns.ask("POST", "/faults", fault, nil) }

// Assert fails the test unless something is so, or becomes so within a time: received, consumed, scheduled, dead_letters,
// empty, awaited, nothing_lost or idle.
func (ns *Namespace) Assert(that string, given Given, within time.Duration) []Message {
	ns.t.Helper()
	body := Given{"that": that, "within_ms": within.Milliseconds()}
	for name, value := range given {
		body[name] = value
	}
	var outcome struct {
		Passed   bool
		Text     string
		Messages []Message
	}
	ns.ask("POST", "/assertions", body, &outcome)
	if !outcome.Passed {
		ns.t.Fatal(outcome.Text)
	}
	return outcome.Messages
}

// Explanation is the end of the namespace's journal, with the reasons why messages were not delivered.
func (ns *Namespace) Explanation() string {
	var text string
	ns.ask("GET", "/explanation", nil, &text)
	return text
}

func (ns *Namespace) clock(verb string, body Given) {
	at := *ns
	at.path = "/clock/" + verb
	at.ask("POST", "", body, nil)
}

func (ns *Namespace) ask(method, path string, body Given, answer any) {
	ns.t.Helper()
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			ns.t.Fatal(err)
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, base+"/api/v1/test"+ns.path+path, sent)
	if err != nil {
		ns.t.Fatal(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		ns.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		ns.t.Fatal(err)
	}
	if response.StatusCode >= 400 {
		ns.t.Fatalf("%s %s: %s", method, ns.path+path, text)
	}
	if plain, is := answer.(*string); is {
		*plain = string(text)
	} else if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			ns.t.Fatal(err)
		}
	}
}
