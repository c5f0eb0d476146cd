/*
 * Returns the offsets of the fields in the structures of libpq/hba.h, and the values of its enumerations, as the
 * compiler sees them. The library reads these structures by its own description, which a test compares with this.
 */
#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "libpq/hba.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(hba_layout);

#define FIELD(type, field) appendStringInfo(&text, #type "." #field " %zu\n", offsetof(type, field))
#define NUMBER(name) appendStringInfo(&text, #name " %d\n", (int) name)

Datum
hba_layout(PG_FUNCTION_ARGS)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "sockaddr_storage %zu\n", sizeof(struct sockaddr_storage));
	FIELD(struct sockaddr_storage, ss_family);
	FIELD(AuthToken, string);
	FIELD(AuthToken, quoted);
#if PG_VERSION_NUM >= 160000
	FIELD(AuthToken, regex);
	FIELD(TokenizedAuthLine, file_name);
#endif
	FIELD(TokenizedAuthLine, line_num);
	FIELD(TokenizedAuthLine, err_msg);
	FIELD(HbaLine, linenumber);
	FIELD(HbaLine, conntype);
	FIELD(HbaLine, databases);
	FIELD(HbaLine, roles);
	FIELD(HbaLine, addr);
	FIELD(HbaLine, mask);
	FIELD(HbaLine, ip_cmp_method);
	FIELD(HbaLine, hostname);
	FIELD(HbaLine, auth_method);
	FIELD(HbaLine, usermap);
	FIELD(HbaLine, clientcert);
	FIELD(HbaLine, clientcertname);
	FIELD(IdentLine, usermap);
#if PG_VERSION_NUM >= 160000
	FIELD(IdentLine, system_user);
	FIELD(IdentLine, pg_user);
#else
	FIELD(IdentLine, ident_user);
	FIELD(IdentLine, pg_role);
	FIELD(IdentLine, re);
#endif
	NUMBER(ctLocal);
	NUMBER(ctHost);
	NUMBER(ctHostSSL);
	NUMBER(ctHostNoSSL);
	NUMBER(ctHostGSS);
	NUMBER(ctHostNoGSS);
	NUMBER(ipCmpMask);
	NUMBER(ipCmpSameHost);
	NUMBER(ipCmpSameNet);
	NUMBER(ipCmpAll);
	NUMBER(uaReject);
	NUMBER(uaTrust);
	NUMBER(uaPassword);
	NUMBER(uaMD5);
	NUMBER(uaSCRAM);
	NUMBER(uaPeer);
	NUMBER(uaCert);
	NUMBER(clientCertOff);
	NUMBER(clientCertCA);
	NUMBER(clientCertFull);
	NUMBER(clientCertCN);
	NUMBER(clientCertDN);
	appendStringInfo(&text, "regex_t fits %d\n", sizeof(regex_t) <= 256);
	appendStringInfo(&text, "regmatch_t %zu\n", sizeof(regmatch_t));
	PG_RETURN_TEXT_P(cstring_to_text_with_len(text.data, text.len));
}
