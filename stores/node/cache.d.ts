import type { Pool, PoolConfig } from 'pg'

export interface Codec {
  /** `encode` returns text instead of bytes. */
  text?: boolean
  encode: (value: any) => any
  decode: (stored: any) => any
}

export interface Options extends PoolConfig {
  pool?: Pool
  cache?: string
  codec?: Codec
  prepare?: boolean
  page?: number
  wait?: number
}

/** Each ttl is in milliseconds; without one the cache's own applies. */
export declare class Cache {
  constructor(options?: Options)
  get(key: string): Promise<any>
  getMany(keys: string[]): Promise<any[]>
  set(key: string, value: any, ttl?: number): Promise<boolean>
  setMany(entries: Array<{ key: string, value: any, ttl?: number }>): Promise<boolean[]>
  delete(key: string): Promise<boolean>
  deleteMany(keys: string[]): Promise<boolean>
  has(key: string): Promise<boolean>
  hasMany(keys: string[]): Promise<boolean[]>
  touch(key: string, ttl?: number): Promise<boolean>
  clear(prefix?: string): Promise<void>
  entries(prefix?: string): AsyncGenerator<[string, any], void>
  keys(prefix?: string): AsyncGenerator<string, void>
  remember<T>(key: string, load: () => Promise<T>, ttl?: number): Promise<T>
  end(): Promise<void>
}
