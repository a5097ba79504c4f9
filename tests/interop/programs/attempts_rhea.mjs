// A worker of rhea: see tests/interop/attempts.py.
import readline from "readline";
import rhea from "rhea";

const { BROKER_URL, PREFETCH, HANDLE, END } = process.env;
const { hostname, port } = new URL(BROKER_URL.replace("amqp:", "http:"));
setTimeout(() => process.exit(1), 20_000).unref();

const happens = (emitter, name) => new Promise((resolve) => emitter.once(name, resolve));
const reconnect = END === "return" ? 10 : false;
const connection = rhea.create_container().connect({ host: hostname, port: Number(port), reconnect });
connection.on("disconnected", () => {});
await happens(connection, "connection_open");
const session = connection.create_session();
session.open(); // it and its links are opened again by themselves
const receiver = session.open_receiver({ source: "jobs", credit_window: 0, autoaccept: false });
const waiting = [], come = [];
receiver.on("message", (context) => (waiting.length ? waiting.shift()(context) : come.push(context)));
const next = () => (come.length ? Promise.resolve(come.shift()) : new Promise((resolve) => waiting.push(resolve)));
receiver.add_credit(Number(PREFETCH));

for (let count = Number(HANDLE); count; count--) {
  const { message, delivery } = await next();
  delivery.accept();
  receiver.add_credit(1);
  const sender = session.open_sender("done");
  await happens(sender, "sendable"); // the disposition was written before
  console.log("handled", message.body);
}
const lines = readline.createInterface({ input: process.stdin });
async function work() {
  const { message } = await next();
  const told = happens(lines, "line");
  console.log("working", message.body);
  await told;
}
const lost = happens(connection, "disconnected");
await work();
if (END === "detach") {
  receiver.close();
  await happens(receiver, "receiver_close");
} else if (END === "end") {
  session.close();
  await happens(session, "session_close");
} else if (END === "close") {
  connection.close();
  await happens(connection, "connection_close");
} else if (END === "return") {
  await lost;
  come.length = 0; // of the connection that is lost
  await happens(connection, "connection_open");
  receiver.add_credit(Number(PREFETCH));
  await work();
}
process.exit(0);
