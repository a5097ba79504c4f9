// stompit. Prints a line of the Test Anything Protocol for each step.
const stompit = require("stompit");
const { once } = require("node:events");

const options = { host: "127.0.0.1", port: Number(process.env.STOMP_PORT), connectHeaders: { host: "localhost", "heart-beat": "5000,5000" } };
const SOON = 20_000;

function within(promise, what) {
  return Promise.race([promise, new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what}`)), SOON).unref())]);
}

function connected() {
  return within(new Promise((resolve, reject) => stompit.connect(options, (error, client) => (error ? reject(error) : resolve(client)))), "CONNECTED");
}

function send(target, headers, body) {
  return within(new Promise((resolve, reject) => {
    const frame = target.send(headers, { onReceipt: resolve, onError: reject });
    frame.end(body);
  }), "receipt");
}

// Messages of a subscription, one by one, as [message, body].
function inbox(client, headers) {
  const waiting = [], come = [];
  const subscription = client.subscribe(headers, (error, message) => {
    if (error) return;
    message.readString("utf-8", (_, body) => {
      const next = waiting.shift();
      if (next) next([message, body]);
      else come.push([message, body]);
    });
  });
  const next = () => (come.length ? Promise.resolve(come.shift()) : within(new Promise((resolve) => waiting.push(resolve)), "message"));
  return { next, unsubscribe: () => subscription.unsubscribe() };
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

async function main() {
  let client;
  await step("connect", async () => {
    client = await connected();
    equal(client.headers.version, "1.2");
    client.on("error", () => {});
  });
  await step("send with a receipt", () => send(client, { destination: "/queue/it.a", color: "red" }, "päper"));
  await step("subscribe with a selector", async () => {
    await send(client, { destination: "/queue/it.a", color: "blue" }, "no");
    await send(client, { destination: "/queue/it.a", "amount;type=int": "5" }, "5");
    const messages = inbox(client, { destination: "/queue/it.a", ack: "auto", selector: "color = 'red' OR amount > 4" });
    equal([(await messages.next())[1], (await messages.next())[1]], ["päper", "5"]);
    messages.unsubscribe();
  });
  await step("acknowledge", async () => {
    for (const body of ["1", "2", "3"]) await send(client, { destination: "/queue/it.b" }, body);
    const first = await connected();
    const messages = inbox(first, { destination: "/queue/it.b", ack: "client-individual" });
    const [, second] = [await messages.next(), await messages.next(), await messages.next()];
    first.ack(second[0]);
    await within(new Promise((resolve, reject) => first.disconnect((error) => (error ? reject(error) : resolve()))), "end");
    const again = inbox(client, { destination: "/queue/it.b", ack: "client" });
    const one = await again.next(), three = await again.next();
    equal([one[1], one[0].headers.redelivered, three[1]], ["1", "true", "3"]);
    client.ack(three[0]); // cumulative
    again.unsubscribe();
  });
  await step("return a message", async () => {
    await send(client, { destination: "/queue/it.c" }, "x");
    const messages = inbox(client, { destination: "/queue/it.c", ack: "client-individual" });
    client.nack((await messages.next())[0]);
    const [message, body] = await messages.next();
    equal([body, message.headers.redelivered], ["x", "true"]);
    client.ack(message);
  });
  await step("commit and abort", async () => {
    const aborted = client.begin();
    aborted.send({ destination: "/queue/it.d" }).end("aborted");
    aborted.abort();
    const committed = client.begin();
    for (const body of ["1", "2"]) committed.send({ destination: "/queue/it.d" }).end(body);
    committed.commit();
    const messages = inbox(client, { destination: "/queue/it.d", ack: "auto" });
    equal([(await messages.next())[1], (await messages.next())[1]], ["1", "2"]);
  });
  await step("a wrong selector is an ERROR with the place", async () => {
    const other = await connected();
    other.on("error", () => {});
    // stompit raises an ERROR at the stream of the frame, to which a program cannot listen.
    const failed = within(once(process, "uncaughtException"), "ERROR");
    other.subscribe({ destination: "/queue/it.a", selector: "amount >" }, () => {});
    const [error] = await failed;
    if (!error.longMessage?.includes("^")) throw new Error(error.message);
  });
  client.disconnect();
}

main();
