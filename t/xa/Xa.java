import com.arjuna.ats.arjuna.recovery.RecoveryManager;
import com.arjuna.ats.arjuna.recovery.RecoveryModule;
import com.arjuna.ats.internal.jta.recovery.arjunacore.XARecoveryModule;
import com.arjuna.ats.jta.recovery.XAResourceRecoveryHelper;
import jakarta.transaction.TransactionManager;
import java.io.Serializable;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import javax.sql.XAConnection;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.postgresql.xa.PGXADataSource;

/**
 * Global transactions over two databases, each with the cache "c", by a transaction manager (Narayana). First argument:
 * "run" for commits and rollbacks; "halt" for one whose manager dies when both branches are prepared; "recover" for what
 * the manager does about it when it is started again.
 */
public class Xa {
    static final String[] DATABASES = {"xa_one", "xa_two"};

    /** A third branch, with which something happens. */
    static class Other implements XAResource, Serializable {
        enum Fate {COMMITS, REFUSES, HALTS}

        /** A branch that is read back from the manager's log commits. */
        transient Fate fate = Fate.COMMITS;

        Other(Fate fate) {
            this.fate = fate;
        }

        public int prepare(Xid xid) throws XAException {
            if (fate == Fate.REFUSES) {
                throw new XAException(XAException.XA_RBROLLBACK);
            }
            return XA_OK;
        }

        public void commit(Xid xid, boolean onePhase) {
            if (fate == Fate.HALTS) {
                say("halts");
                Runtime.getRuntime().halt(0);
            }
        }

        public void rollback(Xid xid) {}
        public void start(Xid xid, int flags) {}
        public void end(Xid xid, int flags) {}
        public void forget(Xid xid) {}
        public Xid[] recover(int flags) { return new Xid[0]; }
        public boolean isSameRM(XAResource other) { return this == other; }
        public int getTransactionTimeout() { return 0; }
        public boolean setTransactionTimeout(int seconds) { return false; }
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static PGXADataSource source(String database) throws Exception {
        PGXADataSource source = new PGXADataSource();
        source.setServerNames(new String[] {"127.0.0.1"});
        source.setPortNumbers(new int[] {Integer.parseInt(System.getenv("PGPORT"))});
        source.setDatabaseName(database);
        source.setUser("postgres");
        return source;
    }

    static String ask(Connection connection, String sql) throws Exception {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            return rows.next() ? rows.getString(1) : null;
        }
    }

    /** Prints the key as a session of its own sees it in each database: by function, twice, and by SELECT. */
    static void show(String when) throws Exception {
        StringBuilder line = new StringBuilder(when);
        for (String database : DATABASES) {
            try (Connection connection = source(database).getConnection()) {
                String row = ask(connection, "SELECT value FROM c WHERE key = 'k'");
                for (int i = 0; i < 2; i++) {
                    String said = ask(connection, "SELECT cache_get('k', 'c')");
                    line.append(row != null && row.equals(said) ? "" : " DIFFERS: " + said);
                }
                line.append(" ").append(row);
            }
        }
        say(line.toString());
    }

    static void transaction(TransactionManager manager, String value, Other.Fate fate, boolean commits) throws Exception {
        List<XAConnection> open = new ArrayList<>();
        manager.begin();
        manager.getTransaction().enlistResource(new Other(fate));
        for (String database : DATABASES) {
            XAConnection connection = source(database).getXAConnection();
            open.add(connection);
            manager.getTransaction().enlistResource(connection.getXAResource());
            ask(connection.getConnection(), "SELECT cache_set('k', '" + value + "', cache => 'c')");
        }
        show("inside:");
        if (commits) {
            try {
                manager.commit();
            } catch (jakarta.transaction.RollbackException | jakarta.transaction.HeuristicMixedException refused) {
                say("was rolled back");
            }
        } else {
            manager.rollback();
        }
        for (XAConnection connection : open) {
            connection.close();
        }
        show("after:");
    }

    static void recover() throws Exception {
        RecoveryManager manager = RecoveryManager.manager(RecoveryManager.DIRECT_MANAGEMENT);
        manager.initialize();
        List<XAConnection> open = new ArrayList<>();
        for (String database : DATABASES) {
            open.add(source(database).getXAConnection());
        }
        for (RecoveryModule module : manager.getModules()) {
            if (module instanceof XARecoveryModule recovery) {
                recovery.addXAResourceRecoveryHelper(new XAResourceRecoveryHelper() {
                    public boolean initialise(String text) { return true; }
                    public XAResource[] getXAResources() throws Exception {
                        List<XAResource> resources = new ArrayList<>();
                        for (XAConnection connection : open) {
                            resources.add(connection.getXAResource());
                        }
                        return resources.toArray(new XAResource[0]);
                    }
                });
            }
        }
        manager.scan();
        show("recovered:");
        System.exit(0);
    }

    public static void main(String[] arguments) throws Exception {
        TransactionManager manager = com.arjuna.ats.jta.TransactionManager.transactionManager();
        switch (arguments[0]) {
            case "run" -> {
                transaction(manager, "one", Other.Fate.COMMITS, true);
                transaction(manager, "never", Other.Fate.COMMITS, false);
                transaction(manager, "refused", Other.Fate.REFUSES, true);
                transaction(manager, "two", Other.Fate.COMMITS, true);
                System.exit(0);
            }
            case "halt" -> transaction(manager, "three", Other.Fate.HALTS, true);
            case "recover" -> {
                show("before:");
                recover();
            }
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }
}
