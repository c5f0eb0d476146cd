// The caches that check.sh creates, and the codec for each.
import v8 from 'node:v8'

export const v8codec = { encode: v8.serialize, decode: v8.deserialize }

export const caches = {
  'text, unlogged': { cache: 'texts' },
  'text, memory': { cache: 'texts_memory' },
  'bytes, unlogged': { cache: 'bytes', codec: v8codec },
  'bytes, memory': { cache: 'bytes_memory', codec: v8codec }
}

export const sleep = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds))
