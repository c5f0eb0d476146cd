<?php

declare(strict_types=1);

// What Laravel's own tests stand on, of which no distribution packs what they need.

namespace Illuminate\Foundation\Testing\Concerns {
    trait InteractsWithRedis
    {
        protected function setUpRedis(): void
        {
        }

        protected function tearDownRedis(): void
        {
        }
    }
}

namespace Orchestra\Testbench {
    abstract class TestCase extends \PHPUnit\Framework\TestCase
    {
        protected $app;

        protected function setUp(): void
        {
            parent::setUp();
            $this->app = \laravel();
        }
    }
}

namespace Illuminate\Tests\Integration\Cache {
    /** Laravel's looks for a memcached. */
    abstract class MemcachedIntegrationTestCase extends \Orchestra\Testbench\TestCase
    {
    }
}
