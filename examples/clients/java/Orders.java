// A client without Python: it processes the queue "orders" through its stored functions, until nothing is ready.
// The connection is in the environment (PGHOST, PGUSER, ...); TABLEQUEUE_SCHEMA is the schema of the queue.
//
//     java -cp postgresql.jar Orders.java push '{"id": 7}'      one message
//     java -cp postgresql.jar Orders.java work                  pop, do the work, complete; or fail
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Properties;

public class Orders {
    static String environment(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null ? otherwise : value;
    }

    static Connection connect() throws SQLException {
        Properties options = new Properties();
        options.setProperty("user", environment("PGUSER", "postgres"));
        options.setProperty("password", environment("PGPASSWORD", ""));
        options.setProperty("currentSchema", environment("TABLEQUEUE_SCHEMA", "public"));
        String host = environment("PGHOST", "localhost") + ":" + environment("PGPORT", "5432");
        return DriverManager.getConnection("jdbc:postgresql://" + host + "/" + environment("PGDATABASE", ""), options);
    }

    static void push(Connection connection, String payload) throws SQLException {
        try (var call = connection.prepareStatement("select tq_orders_push(cast(? as json), p_producer => 'java')")) {
            call.setString(1, payload);
            var rows = call.executeQuery();
            rows.next();
            System.out.println(rows.getLong(1));
        }
    }

    static void work(Connection connection) throws SQLException {
        String pop = "select id, token, attempts, payload from tq_orders_pop(10, 'java', p_lease => 30)";
        for (boolean some = true; some;) {
            some = false;
            try (var popping = connection.prepareStatement(pop); var rows = popping.executeQuery()) {
                while (rows.next()) {
                    some = true;
                    end(connection, rows.getLong(1), rows.getObject(2), rows.getInt(3), rows.getString(4));
                }
            }
        }
    }

    // Do the work and complete the message, or fail it with the error of the work.
    static void end(Connection connection, long id, Object token, int attempts, String payload) throws SQLException {
        boolean bad = payload.contains("bad"); // the work
        String verb = bad ? "tq_orders_fail(?, ?, 'what Java cannot do')" : "tq_orders_complete(array[?], ?)";
        try (var call = connection.prepareStatement("select " + verb)) {
            call.setLong(1, id);
            call.setObject(2, token);
            call.executeQuery();
            System.out.println(bad ? "failed " + id + ", attempt " + attempts : "done " + id + " " + payload);
        } catch (SQLException error) {
            if (!"TQ003".equals(error.getSQLState())) { // the lease was lost: another consumer has the message
                throw error;
            }
        }
    }

    public static void main(String[] words) throws SQLException {
        try (Connection connection = connect()) {
            if (words.length == 2 && words[0].equals("push")) {
                push(connection, words[1]);
            } else if (words.length == 1 && words[0].equals("work")) {
                work(connection);
            } else {
                System.err.println("java -cp postgresql.jar Orders.java push PAYLOAD | work");
                System.exit(2);
            }
        }
    }
}
