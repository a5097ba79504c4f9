// @stomp/stompjs over WebSocket. Prints a line of the Test Anything Protocol for each step.
import { Client } from "@stomp/stompjs";
import WebSocket from "ws";

const URL = process.env.STOMP_URL;
const SOON = 20_000;

function within(promise, what) {
  return Promise.race([promise, new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what}`)), SOON).unref())]);
}

async function connected() {
  const client = new Client({ webSocketFactory: () => new WebSocket(URL, ["v12.stomp"]), reconnectDelay: 0 });
  await within(new Promise((resolve, reject) => {
    client.onConnect = resolve;
    client.onStompError = (frame) => reject(new Error(frame.headers.message));
    client.onWebSocketError = reject;
    client.activate();
  }), "CONNECTED");
  return client;
}

// Messages of a subscription, one by one.
function inbox(client, destination, headers = {}) {
  const waiting = [], come = [];
  const subscription = client.subscribe(destination, (message) => {
    const next = waiting.shift();
    if (next) next(message);
    else come.push(message);
  }, headers);
  const next = () => (come.length ? Promise.resolve(come.shift()) : within(new Promise((resolve) => waiting.push(resolve)), "message"));
  return { next, unsubscribe: () => subscription.unsubscribe() };
}

let receipts = 0;
// A frame that asks for a receipt, and its receipt.
function confirmed(client, send) {
  const receipt = `r${++receipts}`;
  const come = within(new Promise((resolve) => client.watchForReceipt(receipt, resolve)), "receipt");
  send({ receipt });
  return come;
}

function equal(is, wanted) {
  if (JSON.stringify(is) !== JSON.stringify(wanted)) throw new Error(`${JSON.stringify(is)} instead of ${JSON.stringify(wanted)}`);
}

async function step(name, body) {
  try {
    await body();
    console.log(`ok - ${name}`);
  } catch (error) {
    console.log(`not ok - ${name} # ${error.message}`);
    process.exitCode = 1;
  }
}

let client;
await step("connect", async () => {
  client = await connected();
  equal(client.connectedVersion, "1.2");
});
await step("send with a receipt", () =>
  confirmed(client, (headers) => client.publish({ destination: "/queue/js.a", body: "päper", headers: { ...headers, color: "red" } })));
await step("subscribe with a selector", async () => {
  client.publish({ destination: "/queue/js.a", body: "no", headers: { color: "blue" } });
  client.publish({ destination: "/queue/js.a", body: "5", headers: { color: "blue", "amount;type=int": "5" } });
  const messages = inbox(client, "/queue/js.a", { selector: "color = 'red' OR amount > 4" });
  equal([(await messages.next()).body, (await messages.next()).body], ["päper", "5"]);
  messages.unsubscribe();
});
await step("acknowledge", async () => {
  for (const body of ["1", "2", "3"]) client.publish({ destination: "/queue/js.b", body });
  const first = await connected();
  const messages = inbox(first, "/queue/js.b", { ack: "client-individual" });
  const [, second] = [await messages.next(), await messages.next(), await messages.next()];
  await confirmed(first, (headers) => second.ack(headers));
  await first.deactivate();
  const again = inbox(client, "/queue/js.b", { ack: "client" });
  const one = await again.next(), three = await again.next();
  equal([one.body, one.headers.redelivered, three.body], ["1", "true", "3"]);
  await confirmed(client, (headers) => three.ack(headers)); // cumulative
  again.unsubscribe();
});
await step("return a message", async () => {
  client.publish({ destination: "/queue/js.c", body: "x" });
  const messages = inbox(client, "/queue/js.c", { ack: "client-individual" });
  (await messages.next()).nack();
  const again = await messages.next();
  equal([again.body, again.headers.redelivered], ["x", "true"]);
  again.nack({ requeue: "false" });
  const dead = inbox(client, "/queue/DLQ.js.c");
  equal((await dead.next()).body, "x");
});
await step("commit and abort", async () => {
  const aborted = client.begin();
  client.publish({ destination: "/queue/js.d", body: "aborted", headers: { transaction: aborted.id } });
  aborted.abort();
  const committed = client.begin();
  for (const body of ["1", "2"]) client.publish({ destination: "/queue/js.d", body, headers: { transaction: committed.id } });
  committed.commit();
  const messages = inbox(client, "/queue/js.d");
  equal([(await messages.next()).body, (await messages.next()).body], ["1", "2"]);
});
await step("bytes", async () => {
  const binaryBody = new Uint8Array([0, 255, 10]);
  client.publish({ destination: "/queue/js.e", binaryBody });
  const messages = inbox(client, "/queue/js.e");
  equal([...(await messages.next()).binaryBody], [0, 255, 10]);
});
await step("a wrong selector is an ERROR with the place", async () => {
  const other = await connected();
  const frame = await within(new Promise((resolve) => {
    other.onStompError = resolve;
    other.subscribe("/queue/js.a", () => {}, { selector: "amount >" });
  }), "ERROR");
  if (!frame.body.includes("^")) throw new Error(frame.body);
  await other.deactivate();
});
await client.deactivate();
