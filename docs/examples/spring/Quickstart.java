// Runs Orders.java.

package shop;

import java.util.Map;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;

@SpringBootApplication
public class Quickstart {
    public static void main(String[] arguments) {
        Map<String, Object> database = Map.of("spring.datasource.url", System.getenv("DATABASE_URL"));
        var application = new SpringApplicationBuilder(Quickstart.class).properties(database);
        try (var context = application.run(arguments)) {
            context.getBean(Orders.class).place("[{\"item\": \"book\", \"count\": 2}]");
        }
    }
}
