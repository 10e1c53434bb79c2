import pygit2

repo = pygit2.Repository("/workspace")
who = pygit2.Signature("Agent", "agent@example.test", 1700000000, 0)
for c in repo.walk(repo.head.target):
    print(c.id, repr(c.message))
print(sorted(repo.status().items()))
with open("/workspace/libgit2", "w") as f:
    f.write("by libgit2\n")
repo.index.add("libgit2")
repo.index.write()
print(sorted(repo.status().items()))
tree = repo.index.write_tree()
oid = repo.create_commit("HEAD", who, who, "By libgit2\n", tree, [repo.head.target])
print(oid)
repo.create_tag("libgit2", oid, pygit2.enums.ObjectType.COMMIT, who, "By libgit2\n")
repo.branches.create("libgit2", repo[oid])
repo.checkout("refs/heads/libgit2")
repo.checkout("refs/heads/main")
print(sorted(repo.references))
print(repo.diff("HEAD~1", "HEAD").stats.format(pygit2.enums.DiffStatsFormat.FULL, 80))
with open("/workspace/words", "a") as f:
    f.write("stashed\n")
repo.stash(who, "By libgit2")
repo.stash_pop()
print(sorted(repo.status().items()))
repo.checkout_head(strategy=pygit2.enums.CheckoutStrategy.FORCE)
print(sorted(repo.status().items()))
