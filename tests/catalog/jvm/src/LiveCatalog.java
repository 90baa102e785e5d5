import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogProperties;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.rest.RESTCatalog;

/** A client of the live server whose address is in the system property firn.catalog.uri. */
final class LiveCatalog {
  private LiveCatalog() {}

  static RESTCatalog connect(String name, Map<String, String> more) {
    Map<String, String> properties = new HashMap<>();
    properties.put(CatalogProperties.URI, System.getProperty("firn.catalog.uri"));
    properties.put(CatalogProperties.FILE_IO_IMPL, "org.apache.iceberg.hadoop.HadoopFileIO");
    // The catalog tests look for exactly these defaults and overrides of a client.
    properties.put(CatalogProperties.TABLE_DEFAULT_PREFIX + "default-key1", "catalog-default-key1");
    properties.put(CatalogProperties.TABLE_DEFAULT_PREFIX + "default-key2", "catalog-default-key2");
    properties.put(CatalogProperties.TABLE_DEFAULT_PREFIX + "override-key3", "catalog-default-key3");
    properties.put(CatalogProperties.TABLE_OVERRIDE_PREFIX + "override-key3", "catalog-override-key3");
    properties.put(CatalogProperties.TABLE_OVERRIDE_PREFIX + "override-key4", "catalog-override-key4");
    properties.put(CatalogProperties.VIEW_DEFAULT_PREFIX + "key1", "catalog-default-key1");
    properties.put(CatalogProperties.VIEW_DEFAULT_PREFIX + "key2", "catalog-default-key2");
    properties.put(CatalogProperties.VIEW_DEFAULT_PREFIX + "key3", "catalog-default-key3");
    properties.put(CatalogProperties.VIEW_OVERRIDE_PREFIX + "key3", "catalog-override-key3");
    properties.put(CatalogProperties.VIEW_OVERRIDE_PREFIX + "key4", "catalog-override-key4");
    properties.putAll(more);
    RESTCatalog catalog = new RESTCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize(name, properties);
    return catalog;
  }

  /** Every test begins with an empty catalog. */
  static void empty(RESTCatalog catalog) {
    for (Namespace namespace : catalog.listNamespaces()) {
      empty(catalog, namespace);
    }
  }

  private static void empty(RESTCatalog catalog, Namespace namespace) {
    for (Namespace child : catalog.listNamespaces(namespace)) {
      empty(catalog, child);
    }
    for (TableIdentifier table : catalog.listTables(namespace)) {
      catalog.dropTable(table, false);
    }
    for (TableIdentifier view : catalog.listViews(namespace)) {
      catalog.dropView(view);
    }
    catalog.dropNamespace(namespace);
  }
}
