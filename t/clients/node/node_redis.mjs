// node-redis, in both versions of the protocol.
import { createClient, RESP_TYPES } from 'redis'

function later () {
  const later = {}
  later.promise = new Promise(resolve => { later.resolve = resolve })
  return later
}

async function sheet (client) {
  const say = (what, ...values) => console.log(what, ...values.map(value => JSON.stringify(value)))
  say('ping', await client.ping())
  say('set', await client.set('tea', 'hot', { EX: 60 }), await client.set('tea', 'x', { NX: true }))
  say('get', await client.get('tea'), await client.get('nothing'), await client.getRange('tea', 0, 1))
  await client.set('bytes', Buffer.from([0, 255, 1]))
  const bytes = await client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }).get('bytes')
  say('bytes', [...bytes])
  const left = await client.ttl('tea')
  say('ttl', left > 0 && left <= 60, await client.ttl('nothing'), await client.persist('tea'), await client.ttl('tea'))
  say('expire', await client.expire('tea', 100), await client.expire('tea', 50, 'GT'))
  say('incr', await client.incr('n'), await client.incrBy('n', 41), await client.decr('n'), await client.incrByFloat('f', 1.5))
  say('many', await client.mSet({ a: '1', b: '2' }), await client.mGet(['a', 'b', 'c']), await client.exists(['a', 'c']))
  const keys = []
  for await (const some of client.scanIterator({ MATCH: '*', COUNT: 2 })) keys.push(...some)
  say('scan', keys.sort(), await client.dbSize())
  say('del', await client.del(['a', 'c']), await client.unlink('b'), await client.getDel('f'))
  // Commands of one turn travel together.
  say('pipeline', await Promise.all([client.set('p', '1'), client.get('p'), client.incr('p')]))
  say('multi', await client.multi().incr('n').get('n').del('p').exec())
  say('error', await client.incr('tea').catch(error => error.message))
  say('type', await client.type('tea'), await client.rename('tea', 'cup'), await client.exists('tea'))

  const listener = client.duplicate()
  await listener.connect()
  const heard = later()
  await listener.subscribe('node_redis', (message, channel) => heard.resolve([channel, message]))
  say('publish', await client.publish('node_redis', 'hello'))
  say('pubsub', await heard.promise)
  await listener.unsubscribe('node_redis')
  await listener.close()

  await client.watch('n')
  await client.incr('n')
  say('watch', await client.multi().set('n', 0).exec().catch(error => error.constructor.name))
  say('name', await client.clientSetName('sheet'), await client.clientGetName())
  say('clear', await client.flushDb(), await client.dbSize())
}

for (const RESP of [2, 3]) {
  console.log('protocol', RESP)
  const client = createClient({ url: process.env.REDIS_URL, RESP })
  await client.connect()
  await sheet(client)
  await client.close()
}
