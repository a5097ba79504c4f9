// With node:test: node --test test/

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { withSieveMQ } from '../sievemq-testing.mjs';
import { send, takeOrders } from './shop.mjs';

test('an order that fails is redelivered after a minute, and is a dead letter then', withSieveMQ(async ({ namespace, clock }) => {
  await namespace.policy('orders', { max_attempts: 2, redelivery_delay: 60_000 });
  await clock.freeze();
  const attempts = [];
  const stop = takeOrders(namespace.amqp, (order) => {
    attempts.push(order.delivery_count ?? 0);
    throw new Error('out of chairs');
  });
  await send(namespace.amqp, 'orders', 'a chair', { region: 'EU' });

  await namespace.assertScheduled('orders', { selector: "region = 'EU'", count: 1, within: 10_000 });
  await assert.rejects(namespace.assertDeadLetters('orders'), /should be at least 1 dead letter/);
  await clock.advance(60_000);
  const [letter] = await namespace.assertDeadLetters('orders', { count: 1, reason: 'attempts', within: 10_000 });

  assert.equal(letter.text, 'a chair');
  assert.deepEqual(attempts, [0, 1]);
  stop();
}));

test('a failing test says why a message was not delivered', async () => {
  const failing = withSieveMQ(async ({ namespace }) => {
    const stop = takeOrders(namespace.amqp, () => {}, 'amount > 100');
    await namespace.assertAwaited('orders', { within: 10_000 });
    await send(namespace.amqp, 'orders', 'a chair', { amount: 90 });
    try {
      await namespace.assertConsumed('orders');
    } finally {
      stop();
    }
  });
  await assert.rejects(failing, /should have been consumed[^]*amount > 100 is FALSE \(amount is 90/);
});

test('an order is sent again when the broker is gone before it has answered', withSieveMQ(async ({ namespace }) => {
  await namespace.fault({ fault: 'drop', on: 'send', after: true });
  await assert.rejects(send(namespace.amqp, 'orders', 'a chair'));
  await send(namespace.amqp, 'orders', 'a chair');
  await namespace.assertReceived('orders', { count: 2 });
}));
