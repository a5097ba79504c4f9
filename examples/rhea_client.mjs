// An AMQP 1.0 client in JavaScript: a selector, acknowledgement, and a dead letter.
//
// Needs Node.js, `npm install rhea`, and a broker: one on this machine, or the one that AMQP_URL names.
import rhea from "rhea";

const { hostname, port } = new URL((process.env.AMQP_URL ?? "amqp://127.0.0.1:7672").replace("amqp:", "http:"));
const connection = rhea.connect({ host: hostname, port: Number(port) });

// One message at a time: rhea 3.0 sends the outcomes of one turn together, all as the first of them.
const orders = connection.open_receiver({
  source: { address: "rhea.orders", filter: rhea.filter.selector("amount > 100") },
  autoaccept: false,
  credit_window: 1,
});
orders.on("message", ({ message, delivery }) => {
  if (message.application_properties.amount === 120) {
    delivery.accept();
    console.log("processed:", message.body);
  } else {
    delivery.reject();
  }
});

connection.open_receiver("DLQ.rhea.orders").on("message", ({ message }) => {
  console.log("rejected:", message.body);
  connection.close();
});

connection.open_sender("rhea.orders").once("sendable", ({ sender }) => {
  for (const amount of [50, 120, 300]) {
    sender.send({ body: `order over ${amount}`, application_properties: { amount } });
  }
});
