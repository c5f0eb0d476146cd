<?php

declare(strict_types=1);

namespace Pgcache;

/** A parameter of type bytea. */
final class Bytes
{
    public function __construct(public readonly string $bytes)
    {
    }
}
