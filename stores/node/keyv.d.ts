import type Keyv from 'keyv'
import { Cache } from './cache.js'

export declare class KeyvPgcache extends Cache {
  namespace?: string
  opts: any
  clear(): Promise<void>
  iterator(namespace?: string): AsyncGenerator<[string, any], void>
  disconnect(): Promise<void>
}

export declare function wrap<T>(keyv: Keyv, key: string, load: () => Promise<T>, ttl?: number): Promise<T>
