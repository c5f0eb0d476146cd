<?php

// For applications without Composer.
spl_autoload_register(static function (string $class): void {
    $file = __DIR__ . '/src/' . strtr(substr($class, strlen('Pgcache\\')), '\\', '/') . '.php';
    if (str_starts_with($class, 'Pgcache\\') && is_file($file)) {
        require $file;
    }
});
