/*
 * Sets the oid that the server tries to assign next. A server that has assigned four thousand million oids starts
 * over and reuses those of dropped relations; a test cannot wait for that.
 */
#include "postgres.h"

#include "access/transam.h"
#include "fmgr.h"
#include "storage/lwlock.h"

#if PG_VERSION_NUM >= 170000
#define COUNTER TransamVariables
#else
#define COUNTER ShmemVariableCache
#endif

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(set_next_oid);

Datum
set_next_oid(PG_FUNCTION_ARGS)
{
	LWLockAcquire(OidGenLock, LW_EXCLUSIVE);
	COUNTER->nextOid = PG_GETARG_OID(0);
	COUNTER->oidCount = 0;
	LWLockRelease(OidGenLock);
	PG_RETURN_VOID();
}
