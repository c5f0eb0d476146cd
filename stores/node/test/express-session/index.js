// The package that express-session's own tests load: the current express-session with our store, or with its own
// store if CACHE does not name a cache. With BYTES the cache's values are bytes.
const v8 = require('node:v8')
const session = require('express-session')

const codec = { encode: v8.serialize, decode: v8.deserialize }

let store = () => new session.MemoryStore()
if (process.env.CACHE) {
  const { PgcacheStore } = require('pgcache-stores/express-session')
  const pool = new (require('pg').Pool)()
  store = () => new PgcacheStore({ pool, cache: process.env.CACHE, ...(process.env.BYTES && { codec }) })
  after(() => pool.end())
}

module.exports = options => session({ store: store(), resave: true, saveUninitialized: true, ...options })
Object.assign(module.exports, session)
