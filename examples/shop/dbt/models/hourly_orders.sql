-- The orders of one complete hour by status. Another build of the same hour replaces its rows, for
-- example after late rows; the other hours stay.
{{ config(
    materialized='incremental',
    incremental_strategy='insert_overwrite',
    file_format='parquet',
    partition_by=['hour']
) }}
{% set start = "to_timestamp('" ~ var('hour') ~ "', \"yyyy-MM-dd'T'HH\")" %}
SELECT status, count(*) AS orders, sum(total) AS revenue, '{{ var("hour") }}' AS hour
FROM {{ source('shop_public', 'orders') }}
WHERE placed_at >= {{ start }} AND placed_at < {{ start }} + INTERVAL 1 HOUR
GROUP BY status
