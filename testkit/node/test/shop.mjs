// The application under test: it takes orders over AMQP by rhea, and cannot handle each at once.

import rhea from 'rhea';

/** Sends one message; resolves when the broker has it. */
export function send({ host, port, vhost }, address, body, properties) {
  return new Promise((resolve, reject) => {
    const connection = rhea.create_container().connect({ host, port, hostname: vhost, reconnect: false });
    connection.open_sender(address);
    connection.once('sendable', ({ sender }) => sender.send({ body, application_properties: properties, durable: true }));
    connection.once('accepted', () => connection.close());
    connection.once('connection_close', resolve);
    connection.once('disconnected', ({ error }) => reject(error ?? new Error('disconnected')));
  });
}

/** Takes orders. `handle` gets each; where it throws, the order is redelivered. */
export function takeOrders({ host, port, vhost }, handle, filter) {
  const connection = rhea.create_container().connect({ host, port, hostname: vhost, reconnect: false });
  const source = { address: 'orders', filter: filter && rhea.filter.selector(filter) };
  connection.open_receiver({ source, autoaccept: false });
  connection.on('message', ({ message, delivery }) => {
    try {
      handle(message);
      delivery.accept();
    } catch {
      delivery.modified({ delivery_failed: true });
    }
  });
  return () => connection.close();
}
