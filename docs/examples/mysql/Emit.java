// Writes events from Java (Connector/J), in the transactions of its own business rows.
//
//     mvn dependency:copy-dependencies
//     DATABASE_URL='jdbc:mysql://localhost/shop?user=app' java -Dfile.encoding=UTF-8 -cp 'target/dependency/*' Emit.java

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Savepoint;

public class Emit {
    static final String EMIT =
        "insert into posthaste_outbox (topic, `key`, `type`, content_type, payload, headers) "
            + "values ('orders', ?, ?, ?, ?, ?)";
    static final String LOCK =
        "select slot from posthaste_key_locks "
            + "where slot = conv(left(sha2(?, 256), 4), 16, 10) & 16383 for update";
    static final String HEADERS =
        "[\"source\", \"shop\", \"source\", \"again\", \"no-value\", null]";

    static Connection connection;

    public static void main(String[] arguments) throws SQLException {
        connection = DriverManager.getConnection(System.getenv("DATABASE_URL"));
        connection.setAutoCommit(false);

        // A business row and its event: both, or neither.
        execute("insert into orders (id, state) values ('order-1', 'placed')");
        execute(EMIT, "order-1", "order.placed", null, "text: Größe", HEADERS);
        connection.commit();

        // JSON, bytes, and no payload at all: a tombstone.
        byte[] bytes = {0x00, (byte) 0xff, (byte) 0xfe};
        execute(EMIT, "order-1", null, "application/json", "{\"a\": 1}", "[]");
        execute(EMIT, "order-1", null, null, bytes, "[]");
        execute(EMIT, "order-1", null, null, null, "[]");
        connection.commit();

        // No business row to lock first: the slot of the event's key is locked until the commit.
        execute(LOCK, "order-1");
        execute(EMIT, "order-1", null, null, "locked", "[]");
        connection.commit();

        // Rolled back: neither the row nor the event exists.
        execute("insert into orders (id, state) values ('order-2', 'placed')");
        execute(EMIT, "order-2", null, null, "never", "[]");
        connection.rollback();

        // A savepoint that is rolled back takes its event with it; the transaction goes on.
        Savepoint attempt = connection.setSavepoint();
        execute(EMIT, "order-1", null, null, "never", "[]");
        connection.rollback(attempt);
        execute(EMIT, "order-1", null, null, "after the savepoint", "[]");
        connection.commit();
        connection.close();
    }

    static void execute(String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int index = 0; index < parameters.length; index++) {
                statement.setObject(index + 1, parameters[index]);
            }
            statement.execute();
        }
    }
}
