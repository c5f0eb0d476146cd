<?php

declare(strict_types=1);

// Replaces the base classes of Laravel's own tests, whose dependencies no distribution packages.

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
    /** Laravel's own class requires a memcached. */
    abstract class MemcachedIntegrationTestCase extends \Orchestra\Testbench\TestCase
    {
    }
}
