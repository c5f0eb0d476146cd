// Keyv's store, and so cache-manager's. Keyv puts its namespace before each key ("shop:key") and makes a text of each
// value unless it is configured otherwise; deadlines are pgcache's, so an expired value is gone for SQL, too.
import { Cache } from './cache.js'

export class KeyvPgcache extends Cache {
  // Tells Keyv 5 that the store can iterate.
  opts = { dialect: 'postgres' }
  // `namespace` is Keyv's to set. Were it a field, Keyv 6 would leave it to us to put it before keys.

  async clear () { await super.clear(this.#prefix(this.namespace)) }

  iterator (namespace) { return this.entries(this.#prefix(namespace)) }

  async disconnect () { await this.end() }

  #prefix (namespace) { return namespace ? `${namespace}:` : '' }
}

// cache-manager's `wrap` for all processes together: of those that miss a key one calls `load`, the others wait for its
// result, or take the stale value if the cache has a grace.
export async function wrap (keyv, key, load, ttl = keyv.ttl) {
  const prefix = keyv.useKeyPrefix && keyv.namespace ? `${keyv.namespace}:` : ''
  const stored = await keyv.store.remember(
    key.startsWith(prefix) ? key : prefix + key,
    async () => keyv.serializeData({ value: await load(), expires: ttl ? Date.now() + ttl : undefined }),
    ttl || undefined
  )
  return (await keyv.deserializeData(stored)).value
}
