/*
 * A wall clock that a test can set. Preloaded into the server (LD_PRELOAD), this library shifts the results of
 * gettimeofday and clock_gettime(CLOCK_REALTIME) by the number of seconds in the file that PGCACHE_CLOCK names.
 * Monotonic clocks are not shifted, as when an administrator sets the time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Postgres 16 and later hide what a module does not export, and then nothing here stands in for libc. */
#define EXPORT __attribute__((visibility("default")))

/* The server asks for the time in signal handlers, too: no memory is allocated, errno stays. */
static long
shift(void)
{
	const char *name = getenv("PGCACHE_CLOCK");
	char		text[32] = "";
	int			former = errno;
	int			file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;

	if (file >= 0)
	{
		if (read(file, text, sizeof(text) - 1) < 0)
			text[0] = '\0';
		close(file);
	}
	errno = former;
	return strtol(text, NULL, 10);
}

EXPORT int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			failed = (int) syscall(SYS_clock_gettime, clock, now);

	if (!failed && clock == CLOCK_REALTIME)
		now->tv_sec += shift();
	return failed;
}

EXPORT int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec precise;
	int			failed = clock_gettime(CLOCK_REALTIME, &precise);

	(void) zone;
	now->tv_sec = precise.tv_sec;
	now->tv_usec = precise.tv_nsec / 1000;
	return failed;
}
