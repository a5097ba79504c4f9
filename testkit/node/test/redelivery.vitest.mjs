// With vitest: npx vitest run

import { expect, test } from 'vitest';

import { withSieveMQ } from '../sievemq-testing.mjs';
import { send, takeOrders } from './shop.mjs';

test('an order that fails is redelivered after a minute', withSieveMQ(async ({ namespace, clock }) => {
  await namespace.policy('orders', { redelivery_delay: 60_000 });
  await clock.freeze();
  let failures = 1;
  const stop = takeOrders(namespace.amqp, () => {
    if (failures--) throw new Error('out of chairs');
  });
  await send(namespace.amqp, 'orders', 'a chair', {});

  await namespace.assertScheduled('orders', { count: 1, within: 10_000 });
  await namespace.assertConsumed('orders', { count: 0 });
  await clock.advance(60_000);
  expect((await namespace.assertConsumed('orders', { count: 1, within: 10_000 }))[0].text).toBe('a chair');
  stop();
}));

test('a failing test says why a message was not delivered', async () => {
  const failing = withSieveMQ(async ({ namespace }) => {
    await send(namespace.amqp, 'orders', 'a chair', {});
    await namespace.assertConsumed('orders');
  });
  await expect(failing()).rejects.toThrow(/no consumer is open on queue:orders/);
});
