// Keyv and Express' sessions, each made as the page has it.
import { once } from 'node:events'
import express from 'express'
import { client, keyv, sessions } from './caches.mjs'

const say = (what, ...values) => console.log(what, ...values.map(value => JSON.stringify(value) ?? 'undefined'))

say('set', await keyv.set('object', { cups: [1, 2] }, 60_000), await keyv.setMany([{ key: 'a', value: 1 }, { key: 'b', value: 2 }]))
say('get', await keyv.get('object'), await keyv.get('nothing'), await keyv.get(['a', 'c']))
say('has', await keyv.has('a'), await keyv.has('c'))
await keyv.set('brief', 1, 20)
await new Promise(resolve => setTimeout(resolve, 50))
say('expired', await keyv.get('brief'))
const entries = []
for await (const [key, value] of keyv.iterator(keyv.namespace)) entries.push([key, value])
say('iterator', entries.sort())
say('delete', await keyv.delete('a'), await keyv.delete('a'))
await keyv.clear()
say('clear', await keyv.get('object'), await client.keys('*'))

const app = express()
app.use(sessions)
app.get('/', (request, response) => {
  request.session.visits = (request.session.visits ?? 0) + 1
  response.send(`visit ${request.session.visits}`)
})
app.get('/leave', (request, response) => request.session.destroy(() => response.send('bye')))
const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
const url = `http://127.0.0.1:${server.address().port}`
let cookie = ''
for (const path of ['/', '/', '/leave', '/']) {
  const answer = await fetch(url + path, { headers: { cookie } })
  cookie ||= answer.headers.get('set-cookie').split(';')[0]
  say(path, await answer.text())
}
const [key] = await client.keys('sess:*')
say('sessions', (await client.keys('sess:*')).length, await client.ttl(key) > 0)
server.close()
server.closeAllConnections()
await client.flushDb()
await keyv.disconnect()
await client.close()
