// A session store for Express. Each session is an entry that lives as long as its cookie, or for `ttl` if the cookie
// has no date. A request that changes nothing only gives it a new deadline (`touch`), and does not write its value.
import session from 'express-session'
import { Cache } from './cache.js'

const JSON_TEXT = { text: true, encode: JSON.stringify, decode: JSON.parse }

// The callback is called outside the promise, so that an error in it causes neither a rejection nor a second call.
const told = (promise, callback) => {
  if (!callback) return promise
  promise.then(value => setImmediate(callback, null, value), error => setImmediate(callback, error))
}

export class PgcacheStore extends session.Store {
  #cache
  #touches

  constructor ({ prefix = 'sess:', ttl = 86_400_000, disableTouch = false, codec = JSON_TEXT, ...options } = {}) {
    super()
    this.prefix = prefix
    this.ttl = ttl
    this.#touches = !disableTouch
    this.#cache = new Cache({ codec, ...options })
  }

  get (sid, callback) { return told(this.#cache.get(this.prefix + sid), callback) }

  // A session whose cookie has expired is removed.
  set (sid, session, callback) {
    // A codec that is not JSON would see the fields behind the cookie.
    const plain = { ...session, cookie: session.cookie?.toJSON?.() ?? session.cookie }
    return told(this.#cache.set(this.prefix + sid, plain, this.#left(session)), callback)
  }

  touch (sid, session, callback) { return told(this.#touch(sid, session), callback) }

  destroy (sid, callback) { return told(this.#cache.delete(this.prefix + sid), callback) }

  clear (callback) { return told(this.#cache.clear(this.prefix), callback) }

  length (callback) { return told(this.ids().then(ids => ids.length), callback) }

  ids (callback) { return told(this.#ids(), callback) }

  all (callback) { return told(this.#all(), callback) }

  // Ends the pool, if the store created it.
  end () { return this.#cache.end() }

  // A cookie with an invalid date gets the store's ttl, because it must not live for ever.
  #left ({ cookie }) {
    const left = cookie?.expires ? new Date(cookie.expires) - Date.now() : this.ttl
    return Number.isNaN(left) ? this.ttl : left
  }

  async #touch (sid, session) {
    const left = this.#left(session)
    if (this.#touches && left > 0) await this.#cache.touch(this.prefix + sid, left)
  }

  #id (key) { return key.slice(this.prefix.length) }

  async #ids () {
    const ids = []
    for await (const key of this.#cache.keys(this.prefix)) ids.push(this.#id(key))
    return ids
  }

  async #all () {
    const sessions = []
    for await (const [key, session] of this.#cache.entries(this.prefix)) sessions.push({ id: this.#id(key), ...session })
    return sessions
  }
}
