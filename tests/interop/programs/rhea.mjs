// rhea. Prints a line of the Test Anything Protocol for each step.
import rhea from "rhea";

const { hostname, port } = new URL(process.env.AMQP_URL.replace("amqp:", "http:"));
const SOON = 20_000;

function within(promise, what) {
  return Promise.race([promise, new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what}`)), SOON).unref())]);
}

// The first of these events.
function happens(emitter, ...names) {
  const first = new Promise((resolve) => names.forEach((name) => emitter.once(name, (context) => resolve({ name, ...context }))));
  return within(first, names.join(" or "));
}

async function connected() {
  const connection = rhea.create_container().connect({ host: hostname, port: Number(port), reconnect: false });
  await happens(connection, "connection_open");
  return connection;
}

async function send(connection, address, message) {
  const sender = connection.open_sender(address);
  await happens(sender, "sendable");
  sender.send(message);
  const { name } = await happens(sender, "accepted", "rejected", "released");
  sender.close();
  return name;
}

// The messages of a link, one by one, with the delivery to settle.
function inbox(connection, source) {
  const receiver = connection.open_receiver({ source, credit_window: 1, autoaccept: false });
  const waiting = [], come = [];
  receiver.on("message", (context) => {
    const next = waiting.shift();
    if (next) next(context);
    else come.push(context);
  });
  const next = () => (come.length ? Promise.resolve(come.shift()) : within(new Promise((resolve) => waiting.push(resolve)), "message"));
  return { next, receiver };
}

function equal(is, wanted) {
  if (JSON.stringify(is) !== JSON.stringify(wanted)) throw new Error(`${JSON.stringify(is)} instead of ${JSON.stringify(wanted)}`);
}

async function step(name, body) {
  try {
    const connection = await connected();
    await body(connection);
    connection.close();
    console.log(`ok - ${name}`);
  } catch (error) {
    console.log(`not ok - ${name} # ${error.message}`);
    process.exitCode = 1;
  }
}

await step("send and receive", async (connection) => {
  equal(await send(connection, "it.a", { body: "päper", application_properties: { n: 1 }, subject: "s" }), "accepted");
  const { message, delivery } = await inbox(connection, "it.a").next();
  equal([message.body, message.application_properties, message.subject], ["päper", { n: 1 }, "s"]);
  delivery.accept();
});

await step("a selector decides", async (connection) => {
  for (const n of [1, 2, 3]) await send(connection, "it.b", { body: `${n}`, application_properties: { n } });
  const messages = inbox(connection, { address: "it.b", filter: rhea.filter.selector("n > 2 OR n < 2") });
  equal([(await messages.next()).message.body, (await messages.next()).message.body], ["1", "3"]);
});

await step("a wrong selector is refused with the place", async (connection) => {
  const receiver = connection.open_receiver({ source: { address: "it.b", filter: rhea.filter.selector("n > > 2") } });
  await happens(receiver, "receiver_error");
  equal(receiver.error.condition, "amqp:invalid-field");
  if (!receiver.error.description.includes("^")) throw new Error(receiver.error.description);
});

await step("release, modify, reject", async (connection) => {
  await send(connection, "it.c", { body: "x" });
  const messages = inbox(connection, "it.c");
  const first = await messages.next();
  first.delivery.release({ delivery_failed: false });
  const second = await messages.next();
  equal([first.message.delivery_count ?? 0, second.message.delivery_count ?? 0], [0, 0]);
  second.delivery.modified({ delivery_failed: true });
  const third = await messages.next();
  equal(third.message.delivery_count, 1);
  third.delivery.reject();
  const { message } = await inbox(connection, "DLQ.it.c").next();
  equal(message.application_properties.JMS_SieveMQ_DeadLetterOrigin, "queue:it.c");
});

await step("what is not settled goes back", async (connection) => {
  await send(connection, "it.d", { body: "x" });
  const other = await connected();
  await inbox(other, "it.d").next();
  other.close();
  await happens(other, "connection_close");
  equal((await inbox(connection, "it.d").next()).message.body, "x");
});

await step("a topic", async (connection) => {
  const first = inbox(connection, "topic:it.t"), second = inbox(connection, "topic:it.t");
  await Promise.all([first, second].map(({ receiver }) => happens(receiver, "receiver_open")));
  await send(connection, "topic:it.t", { body: "x" });
  equal([(await first.next()).message.body, (await second.next()).message.body], ["x", "x"]);
});

await step("a request and its reply", async (connection) => {
  const requests = inbox(connection, "it.e"), replies = inbox(connection, { dynamic: true });
  await happens(replies.receiver, "receiver_open");
  const request = { body: "hello", reply_to: replies.receiver.source.address, correlation_id: "7" };
  await send(connection, "it.e", request);
  const { message, delivery } = await requests.next();
  delivery.accept();
  const relay = connection.open_sender({ target: {} });
  await happens(relay, "sendable");
  relay.send({ to: message.reply_to, correlation_id: message.correlation_id, body: message.body.toUpperCase() });
  const reply = (await replies.next()).message;
  equal([reply.body, reply.correlation_id], ["HELLO", "7"]);
});

await step("a message in several transfers", async (connection) => {
  await send(connection, "it.f", { body: rhea.message.data_section(Buffer.alloc(3_000_000, "x")) });
  equal((await inbox(connection, "it.f").next()).message.body.content.length, 3_000_000);
});
process.exit();
