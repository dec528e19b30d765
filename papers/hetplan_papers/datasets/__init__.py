"""The papers' published data as profiles and SLOs, and seeded generators of cases like theirs."""
