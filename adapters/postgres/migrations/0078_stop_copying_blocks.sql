-- The copies of blocks in `scim_users` were for releases before 0.9.0.
drop trigger copy_block_to_previous_release on directory_blocks;
drop function copy_block_to_previous_release;
