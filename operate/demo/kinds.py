"""The demo's shop for each kind of source."""

from __future__ import annotations

from collections.abc import Mapping

from operate.demo.shop import ShopKind
from operate.demo.shop_mysql import MARIADB, MYSQL
from operate.demo.shop_postgres import POSTGRES

SHOPS: Mapping[str, ShopKind] = {shop.kind: shop for shop in (POSTGRES, MYSQL, MARIADB)}
"""The shop for each kind of source, in the order of `stack.layout.KINDS`."""
