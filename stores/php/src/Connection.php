<?php

declare(strict_types=1);

namespace Pgcache;

use PDO;
use PDOException;

/**
 * A separate connection for the cache, opened when it is first needed. It is not the application's connection,
 * because an error there would abort the application's transaction, and no other session would see an entry before
 * that transaction commits.
 *
 * A connection that the server has closed is replaced once. Then the statement runs again only if it may run
 * twice.
 */
final class Connection
{
    /** SQLSTATEs of a lost connection: class 08, shutdowns, and HY000 and 7, which PDO reports for one. */
    private const LOST = '/^(08|57P0[123]|HY000$|7$)/';

    /** After this many idle seconds a connection is tested before a statement that must not run twice. */
    private const RESTED = 1.0;

    private ?PDO $pdo = null;
    private float $used = 0.0;

    /** @param array<int, mixed> $options PDO's, such as PDO::ATTR_PERSISTENT */
    public function __construct(
        private string $dsn,
        private ?string $user = null,
        private ?string $password = null,
        private array $options = [],
    ) {
    }

    /**
     * Runs a query that may run twice, and returns its rows as lists.
     *
     * @param list<mixed> $values numbers, strings or NULL
     */
    public function rows(string $sql, array $values): array
    {
        try {
            return $this->run($sql, $values);
        } catch (PDOException $error) {
            if (!$this->isLost($error)) {
                throw $error;
            }
            return $this->run($sql, $values);
        }
    }

    /** Returns the first column of the first row of a query that may run twice. */
    public function value(string $sql, mixed ...$values): mixed
    {
        return self::plain($this->rows($sql, $values)[0][0] ?? null);
    }

    /** Runs a query that must not run twice, because it counts, takes or adds. */
    public function valueOnce(string $sql, mixed ...$values): mixed
    {
        if (microtime(true) - $this->used > self::RESTED) {
            $this->rows('SELECT', []);
        }
        try {
            return self::plain($this->run($sql, $values)[0][0] ?? null);
        } catch (PDOException $error) {
            $this->isLost($error);
            throw $error;
        }
    }

    /** Returns a list of texts in Postgres' syntax for arrays. */
    public static function texts(array $texts): string
    {
        return '{' . implode(',', array_map(static fn ($text) => '"' . addcslashes((string) $text, '"\\') . '"', $texts)) . '}';
    }

    /** Returns a string of bytes in Postgres' syntax for bytea. */
    public static function bytes(string $bytes): string
    {
        return '\\x' . bin2hex($bytes);
    }

    /** Reads a column; PDO returns bytea as a stream. */
    public static function plain(mixed $column): mixed
    {
        return is_resource($column) ? stream_get_contents($column) : $column;
    }

    private function run(string $sql, array $values): array
    {
        $statement = $this->pdo()->prepare($sql);
        $statement->execute($values);
        $this->used = microtime(true);

        return $statement->fetchAll(PDO::FETCH_NUM);
    }

    private function pdo(): PDO
    {
        return $this->pdo ??= new PDO($this->dsn, $this->user, $this->password, $this->options + [
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
            // Parameters without a prepared statement: one round trip instead of two, and correct behind
            // pgbouncer.
            PDO::PGSQL_ATTR_DISABLE_PREPARES => true,
        ]);
    }

    private function isLost(PDOException $error): bool
    {
        $lost = preg_match(self::LOST, (string) $error->getCode()) === 1;
        if ($lost) {
            $this->pdo = null;
        }

        return $lost;
    }
}
