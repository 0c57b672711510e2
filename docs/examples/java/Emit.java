// Writes events from Java (JDBC), in the transactions of its own business rows.
//
//     mvn dependency:copy-dependencies
//     DATABASE_URL='jdbc:postgresql://localhost/shop?user=app' java -Dfile.encoding=UTF-8 -cp 'target/dependency/*' Emit.java

import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import org.postgresql.util.PGobject;

public class Emit {
    static final String[] HEADERS = {"source", "shop", "source", "again", "no-value", null};

    static Connection connection;

    public static void main(String[] arguments) throws SQLException {
        connection = DriverManager.getConnection(System.getenv("DATABASE_URL"));
        connection.setAutoCommit(false);

        // A business row and its event: both, or neither.
        execute("insert into orders (id, state) values ('order-1', 'placed')");
        emit("select posthaste.emit('orders', ?, key => ?, type => 'order.placed', headers => ?)",
            "text: Größe", "order-1", connection.createArrayOf("text", HEADERS));
        connection.commit();

        // JSON, with its type.
        emit("select posthaste.emit('orders', ?, key => ?)", typed("json", "{\"b\": 1, \"a\": 2}"), "order-1");
        emit("select posthaste.emit('orders', ?, key => ?)", typed("jsonb", "{\"b\": 1, \"a\": 2}"), "order-1");
        connection.commit();

        // Bytes, and no payload at all: a tombstone.
        emit("select posthaste.emit_bytes('orders', ?, key => ?)", new byte[] {0x00, (byte) 0xff, (byte) 0xfe}, "order-1");
        emit("select posthaste.emit('orders', key => ?)", "order-1");
        connection.commit();

        // No business row to lock first: the event's key is locked until the commit.
        emit("select posthaste.emit('orders', ?, key => ?, lock_key => true)", "locked", "order-1");
        connection.commit();

        // Rolled back: neither the row nor the event exists.
        execute("insert into orders (id, state) values ('order-2', 'placed')");
        execute("select posthaste.emit('orders', 'never', key => 'order-2')");
        connection.rollback();

        // A savepoint that is rolled back takes its event with it; the transaction goes on.
        Savepoint before = connection.setSavepoint();
        execute("select posthaste.emit('orders', 'never', key => 'order-1')");
        connection.rollback(before);
        emit("select posthaste.emit('orders', ?, key => ?)", "after the savepoint", "order-1");
        connection.commit();

        // A plain INSERT; the payload is bytes, the other columns have defaults.
        execute("insert into posthaste.outbox (topic, key, payload, headers) values (?, ?, ?, ?)",
            "orders", "order-1", "inserted".getBytes(StandardCharsets.UTF_8), connection.createArrayOf("text", HEADERS));
        connection.commit();
        connection.close();
    }

    static PGobject typed(String type, String value) throws SQLException {
        PGobject object = new PGobject();
        object.setType(type);
        object.setValue(value);
        return object;
    }

    static PreparedStatement prepare(String sql, Object... parameters) throws SQLException {
        PreparedStatement statement = connection.prepareStatement(sql);
        for (int index = 0; index < parameters.length; index++) {
            statement.setObject(index + 1, parameters[index]);
        }
        return statement;
    }

    static void execute(String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = prepare(sql, parameters)) {
            statement.execute();
        }
    }

    /** Runs one emit and prints the id that it answers. */
    static void emit(String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = prepare(sql, parameters); ResultSet row = statement.executeQuery()) {
            row.next();
            System.out.println(row.getString(1));
        }
    }
}
