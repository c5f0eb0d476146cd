<?php

declare(strict_types=1);

namespace Pgcache\Laravel;

use Illuminate\Cache\Lock;
use Pgcache\Cache;

/**
 * A lock is an entry whose value is its owner. It is added if no entry exists, and removed only if it is still the
 * owner's.
 */
final class PgcacheLock extends Lock
{
    public function __construct(private Cache $cache, string $name, int $seconds, ?string $owner = null)
    {
        parent::__construct($name, $seconds, $owner);
    }

    public function acquire()
    {
        return $this->cache->add($this->name, $this->owner, $this->seconds > 0 ? $this->seconds : null);
    }

    /** Called by Laravel 13. */
    public function refresh($seconds = null)
    {
        $seconds ??= $this->seconds;

        return $this->cache->touchIf($this->name, $this->owner, $seconds > 0 ? $seconds : null);
    }

    public function release()
    {
        return $this->cache->deleteIf($this->name, $this->owner);
    }

    public function forceRelease()
    {
        $this->cache->delete($this->name);
    }

    protected function getCurrentOwner()
    {
        return $this->cache->get($this->name);
    }
}
