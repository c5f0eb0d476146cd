// node-redis with the cache of its own, which the server keeps true (CLIENT TRACKING).
import { BasicClientSideCache, createClient } from 'redis'

const cache = new BasicClientSideCache({ ttl: 0, maxEntries: 100, evictPolicy: 'LRU' })
const client = await createClient({ url: process.env.REDIS_URL, RESP: 3, clientSideCache: cache }).connect()
const other = await createClient({ url: process.env.REDIS_URL }).connect()
const say = (what, ...values) => console.log(what, ...values.map(value => JSON.stringify(value)))
// Reads until the invalidation arrives, which it must sooner or later.
const until = async wanted => {
  for (let tries = 0; tries < 500 && await client.get('k') !== wanted; tries++) await new Promise(resolve => setTimeout(resolve, 10))
  return client.get('k')
}

say('set', await other.set('k', 'one'))
say('get', await client.get('k'), await client.get('k'), cache.stats().hitCount)
say('others set', await other.set('k', 'two'), await until('two'))
say('hits', (await client.get('k'), cache.stats().hitCount > 1))
say('del', await other.del('k'), await until(null))
say('expire', await other.set('k', 'brief', { PX: 50 }), await until('brief'), await until(null))
say('clear', await other.set('k', 'three'), await until('three'), await other.flushDb(), await until(null))
say('name', cache.stats().missCount > 3)
await client.close()
await other.close()
