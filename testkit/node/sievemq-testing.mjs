// A SieveMQ broker for tests with node:test, vitest or anything else that runs async functions.
//
//   import { withSieveMQ } from 'sievemq-testing';
//
//   test('an order is shipped', withSieveMQ(async ({ namespace, clock }) => {
//     const application = start(namespace.amqp);            // { host, port, vhost } of a fresh namespace
//     await clock.advance(60_000);
//     await namespace.assertReceived('shipments', { selector: "region = 'EU'", count: 1, within: 5_000 });
//   }));
//
// SIEVEMQ_HTTP_URL names a broker that runs already with test control; without it `sievemq broker --test-control` is
// started once per process, and SIEVEMQ_COMMAND says by which command.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

let started;
let address;

/** Uses a broker that runs already with test control, for instance in a container.
 * @param httpUrl of its HTTP port
 * @param wire host:port of its wire port, as this process reaches it; as the broker says if not given */
export function useBroker(httpUrl, wire) {
  started = httpUrl;
  address = wire;
}

/** Calls a test with a namespace of its own. Afterwards the clock is the machine's again, and the namespace is gone. If
 * the test throws, the error also says what happened in the namespace, and why messages were not delivered. */
export function withSieveMQ(body) {
  return async () => {
    const control = new Control(await (started ??= url()));
    const namespace = await Namespace.open(control);
    const clock = new Clock(control);
    try {
      return await body({ namespace, clock });
    } catch (error) {
      if (error instanceof Error) error.message += `\n\n${await namespace.explanation()}`;
      throw error;
    } finally {
      await clock.restore();
      await namespace.drop();
    }
  };
}

async function url() {
  if (process.env.SIEVEMQ_HTTP_URL) return process.env.SIEVEMQ_HTTP_URL;
  const [command, ...options] = (process.env.SIEVEMQ_COMMAND ?? 'sievemq').split(' ');
  const ports = ['broker', '--test-control', '--port', '0', '--http-port', '0'];
  const broker = spawn(command, [...options, ...ports], { stdio: ['ignore', 'pipe', 'inherit'] });
  process.once('exit', () => broker.kill('SIGKILL'));
  broker.unref();
  const failed = new Promise((_, reject) => broker.once('error', reject));
  const ready = (async () => {
    for await (const line of createInterface({ input: broker.stdout })) {
      const record = JSON.parse(line);
      if (record.event === 'broker.ready') return record.http_url;
    }
    throw new Error(`${command} broker ended before it was ready`);
  })();
  const found = await Promise.race([ready, failed]);
  broker.stdout.resume().unref();
  return found;
}

/** Requests to /api/v1/test. */
class Control {
  constructor(base) {
    this.base = `${base.replace(/\/$/, '')}/api/v1/test`;
  }

  async ask(method, path, body) {
    const headers = body === undefined ? {} : { 'Content-Type': 'application/json' };
    const answer = await fetch(this.base + path, { method, headers, body: JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${JSON.parse(text).text}`);
    return answer.headers.get('content-type').startsWith('application/json') ? JSON.parse(text) : text;
  }
}

/** The broker's clock; each call answers when everything due has happened. Lengths of time are milliseconds. */
class Clock {
  constructor(control) {
    this.control = control;
  }

  advance = (ms) => this.control.ask('POST', '/clock/advance', { ms });
  set = (date) => this.control.ask('POST', '/clock/set', { to: Number(date) });
  freeze = () => this.control.ask('POST', '/clock/freeze');
  resume = () => this.control.ask('POST', '/clock/resume');
  restore = () => this.control.ask('POST', '/clock/restore');
}

/** Queues and topics that no other test has. `fault` takes what the API takes, such as `{ fault: 'drop', on: 'send' }`. */
class Namespace {
  static async open(control) {
    return new Namespace(control, await control.ask('POST', '/namespaces', {}));
  }

  constructor(control, opened) {
    Object.assign(this, { control, name: opened.name, path: `/namespaces/${encodeURIComponent(opened.name)}` });
    const at = (text) => {
      const { hostname: host, port } = new URL(address ? `http://${address}` : text.replace(/^\w+/, 'http'));
      return { host, port: Number(port), vhost: `/${opened.name}` };
    };
    this.url = opened.url;
    this.amqp = opened.amqp_url && at(opened.amqp_url);
    this.stomp = opened.stomp_url && at(opened.stomp_url);
  }

  ask = (method, path, body) => this.control.ask(method, this.path + path, body);
  policy = (destination, rules) => this.ask('POST', '/policies', { destination, rules });
  fault = (fault) => this.ask('POST', '/faults', fault);
  endFault = (id) => this.ask('DELETE', `/faults/${id}`);
  journal = async () => (await this.ask('GET', '/journal')).events;
  explanation = () => this.ask('GET', '/explanation');
  drop = () => this.ask('DELETE', '');

  async assert(that, { within, ...given } = {}) {
    const outcome = await this.ask('POST', '/assertions', { that, ...given, within_ms: within ?? 0 });
    if (!outcome.passed) throw new Error(outcome.text);
    return outcome.messages;
  }

  assertReceived = (destination, given) => this.assert('received', { destination, ...given });
  assertConsumed = (destination, given) => this.assert('consumed', { destination, ...given });
  assertScheduled = (destination, given) => this.assert('scheduled', { destination, ...given });
  assertDeadLetters = (destination, given) => this.assert('dead_letters', { destination, ...given });
  assertEmpty = (destination, given) => this.assert('empty', { destination, ...given });
  assertAwaited = (destination, given) => this.assert('awaited', { destination, ...given });
}
