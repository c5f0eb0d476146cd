/*
 * Simulates another extension that writes when a transaction ends: runs the SQL of writer.at_commit before the
 * commit, and that of writer.at_prepare before PREPARE TRANSACTION. Postgres calls such callbacks in the reverse
 * order of loading, so shared_preload_libraries decides whether it runs before or after pgcache's callback.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

static char *at_commit;
static char *at_prepare;

static void
run(const char *sql)
{
	if (sql == NULL || sql[0] == '\0')
		return;
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_execute(sql, false, 0) < 0)
		elog(ERROR, "writer could not run its statement");
	PopActiveSnapshot();
	SPI_finish();
}

static void
at_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
		run(at_commit);
	else if (event == XACT_EVENT_PRE_PREPARE)
		run(at_prepare);
}

void		_PG_init(void);

void
_PG_init(void)
{
	DefineCustomStringVariable("writer.at_commit", "SQL to run before the commit.", NULL,
							   &at_commit, "", PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("writer.at_prepare", "SQL to run before PREPARE TRANSACTION.", NULL,
							   &at_prepare, "", PGC_USERSET, 0, NULL, NULL, NULL);
	RegisterXactCallback(at_end, NULL);
}
