import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import org.springframework.jdbc.core.JdbcTemplate;

/**
 * An application with the configuration that README.md shows. It is in no package, so it names all classes that it
 * uses.
 */
@SpringBootApplication(scanBasePackages = "none")
@Import(CacheConfiguration.class)
public class Application {
    public static class Reports {
        private final AtomicInteger made = new AtomicInteger();

        @Cacheable(cacheNames = "reports", sync = true)
        public String report(String name) {
            return name + " " + made.incrementAndGet();
        }
    }

    @Bean
    Reports reports() {
        return new Reports();
    }

    public static void main(String[] args) {
        try (ConfigurableApplicationContext application = SpringApplication.run(Application.class, args)) {
            Reports reports = application.getBean(Reports.class);
            System.out.println(reports.report("a") + ", " + reports.report("a"));
            System.out.println(application.getBean(JdbcTemplate.class).queryForObject(
                "SELECT cache_ttl('reports::a', 'app_cache') BETWEEN '4 minutes' AND '5 minutes'", Boolean.class));
        }
    }
}
