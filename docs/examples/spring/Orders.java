// Writes a business row and its event, from Spring.

package shop;

import java.util.UUID;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

@Service
public class Orders {
    static final String INSERT = "insert into orders (state) values ('placed') returning id";
    static final String EMIT = "select posthaste.emit('orders', ?::jsonb, key => ?, "
        + "type => 'order.placed', headers => ?)";
    private final JdbcClient jdbc;

    Orders(JdbcClient jdbc) {
        this.jdbc = jdbc;
    }

    @Transactional
    public void place(String lines) {
        UUID order = jdbc.sql(INSERT).query(UUID.class).single();
        String[] headers = {"source", "shop"};
        jdbc.sql(EMIT).params(lines, order, headers).query(UUID.class).single();
    }
}
