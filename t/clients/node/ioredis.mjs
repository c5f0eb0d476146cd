// ioredis: one at a time, in a pipeline, in a transaction, on a channel.
import { Redis } from 'ioredis'

const redis = new Redis(process.env.REDIS_URL, { showFriendlyErrorStack: true, maxRetriesPerRequest: 1 })
const say = (what, ...values) => console.log(what, ...values.map(value => JSON.stringify(value)))

say('set', await redis.set('tea', 'hot', 'EX', 60), await redis.set('tea', 'x', 'NX'), await redis.setnx('tea', 'x'))
say('get', await redis.get('tea'), await redis.get('nothing'), await redis.getrange('tea', 0, 1))
await redis.set('bytes', Buffer.from([0, 255, 1]))
say('bytes', [...await redis.getBuffer('bytes')])
const left = await redis.ttl('tea')
say('ttl', left > 0 && left <= 60, await redis.pttl('nothing'), await redis.persist('tea'), await redis.ttl('tea'))
say('incr', await redis.incr('n'), await redis.incrby('n', 41), await redis.decr('n'), await redis.incrbyfloat('f', 1.5))
say('many', await redis.mset({ a: 1, b: 2 }), await redis.mget('a', 'b', 'c'), await redis.exists('a', 'c'))
const keys = []
for await (const some of redis.scanStream({ match: '*', count: 2 })) keys.push(...some)
say('scan', [...new Set(keys)].sort(), await redis.dbsize())
say('del', await redis.del('a', 'c'), await redis.unlink('b'), await redis.getdel('f'))
say('pipeline', await redis.pipeline().set('p', 1).get('p').incr('p').exec())
say('multi', await redis.multi().incr('n').get('n').del('p').exec())
say('error', await redis.incr('tea').catch(error => error.message))
say('failed in a transaction', (await redis.multi().incr('tea').get('n').exec()).map(([error, value]) => error?.message ?? value))
await redis.watch('n')
await redis.incr('n')
say('watch', await redis.multi().set('n', 0).exec())

const listener = redis.duplicate()
await listener.psubscribe('iore*')
const heard = new Promise(resolve => listener.on('pmessage', (...message) => resolve(message)))
say('publish', await redis.publish('ioredis', 'hello'))
say('pubsub', await heard)
await listener.quit()

const other = redis.duplicate({ enableAutoPipelining: true })
say('together', await Promise.all([other.set('q', 1), other.get('q'), other.incr('q')]))
await other.quit()
say('clear', await redis.flushdb(), await redis.dbsize())
say('quit', await redis.quit())
