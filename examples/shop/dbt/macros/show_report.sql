{# Prints the report of the hour at the end of `dbt build`. #}
{% macro show_report(report) %}
  {% if execute and flags.WHICH == 'build' %}
    {% set found = run_query(
      "SELECT hour, status, orders, revenue FROM " ~ report
      ~ " WHERE hour = '" ~ var('hour') ~ "' ORDER BY status"
    ) %}
    {% for row in found.rows %}
      {% do print(row.values() | join('\t')) %}
    {% endfor %}
  {% endif %}
{% endmacro %}
