// Writes a business row and its event, from Java with JDBC.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.UUID;

public class Quickstart {
    static final String INSERT = "insert into orders (id, state) values (?, 'placed')";
    static final String EMIT = "select posthaste.emit('orders', ?::jsonb, key => ?, "
        + "type => 'order.placed', headers => ?)";

    static void placeOrder(Connection connection, UUID order, String lines) throws SQLException {
        connection.setAutoCommit(false);
        try (var insert = connection.prepareStatement(INSERT);
                var emit = connection.prepareStatement(EMIT)) {
            insert.setObject(1, order);
            insert.executeUpdate();
            emit.setString(1, lines);
            emit.setObject(2, order);
            emit.setObject(3, new String[] {"source", "shop"});
            emit.execute();
        }
        connection.commit();  // a connection that is closed without it rolls back
    }

    public static void main(String[] arguments) throws SQLException {
        try (var connection = DriverManager.getConnection(System.getenv("DATABASE_URL"))) {
            placeOrder(connection, UUID.randomUUID(), "[{\"item\": \"book\", \"count\": 2}]");
        }
    }
}
