// A STOMP client in JavaScript, over WebSocket: a selector, acknowledgement, and a dead letter.
//
// Needs Node.js, `npm install @stomp/stompjs ws`, and a broker: one on this machine, or the one whose HTTP port STOMP_URL
// names. In a browser leave out `ws` and `webSocketFactory`, and give `brokerURL` instead.
import { Client } from "@stomp/stompjs";
import WebSocket from "ws";

const url = process.env.STOMP_URL ?? "ws://127.0.0.1:7680/stomp";
const client = new Client({ webSocketFactory: () => new WebSocket(url, ["v12.stomp"]) });
client.onStompError = (frame) => console.log("error:", frame.headers.message);

client.onConnect = () => {
  client.subscribe(
    "/queue/js.orders",
    (message) => {
      if (message.headers.amount === "120") {
        message.ack();
        console.log("processed:", message.body);
      } else {
        message.nack({ requeue: "false" });
      }
    },
    { ack: "client-individual", selector: "amount > 100" },
  );
  client.subscribe("/queue/DLQ.js.orders", async (message) => {
    console.log("rejected:", message.body);
    await client.deactivate();
  });
  for (const amount of [50, 120, 300]) {
    client.publish({ destination: "/queue/js.orders", body: `order over ${amount}`, headers: { "amount;type=int": String(amount) } });
  }
};

client.activate();
