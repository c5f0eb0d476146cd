import { Store, type SessionData } from 'express-session'
import type { Options } from './cache.js'

type Callback<T = void> = (error: any, value?: T) => void

export declare class PgcacheStore extends Store {
  prefix: string
  ttl: number
  constructor(options?: Options & { prefix?: string, ttl?: number, disableTouch?: boolean })
  get(sid: string, callback?: Callback<SessionData | null>): any
  set(sid: string, session: SessionData, callback?: Callback): any
  touch(sid: string, session: SessionData, callback?: Callback): any
  destroy(sid: string, callback?: Callback): any
  all(callback?: Callback<any>): any
  ids(callback?: Callback<string[]>): any
  length(callback?: Callback<number>): any
  clear(callback?: Callback): any
  end(): Promise<void>
}
