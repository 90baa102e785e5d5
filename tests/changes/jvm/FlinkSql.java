import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Runs the SQL statements of a file in this process, each to its end; a line with a semicolon parts them. */
public class FlinkSql {
    public static void main(String[] arguments) throws Exception {
        TableEnvironment flink = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        flink.getConfig().set("parallelism.default", "1");
        // Hadoop's hook at the end of the process looks for its settings with one that is closed by then.
        flink.getConfig().set("classloader.check-leaked-classloader", "false");
        for (String statement : Files.readString(Path.of(arguments[0])).split("\n;\n")) {
            flink.executeSql(statement).await();
        }
    }
}
