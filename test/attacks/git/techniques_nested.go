package git

import (
	"fmt"
	"strings"
)

func replaceAll(s, old, with string) string { return strings.ReplaceAll(s, old, with) }

// gitlink puts a nested repository x into the index as a gitlink, beside what is
// there already; a status of the host's then looks into x.
const gitlink = `
	id=$($A blob .git "commit:tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904
author A <a@example.test> 1 +0000
committer A <a@example.test> 1 +0000

x")
	$A index mine-index-$N 2 160000:$id::$N && cp mine-index-$N .git/index.lock && mv .git/index.lock .git/index
`

func nestedGroups() []Group {
	nested := []Technique{
		{Name: "nested", Try: `mkgit x1/.git`, Naive: true},
		{Name: "nested-deep", Try: `mkgit a/b/c/d/e/f/.git`, Naive: true},
		{Name: "nested-renamed", Try: `mkgit x2/g; mv x2/g x2/.git`, Naive: true},
		{Name: "nested-parent", Try: `mkgit x3/y/.git; mv x3/y x3/z`, Naive: true},
		{Name: "nested-exchange", Try: `mkgit x4/g; mkdir -p x4/.git; $A exchange x4/g x4/.git`},
		{Name: "nested-noreplace", Try: `mkgit x5/g; $A noreplace x5/g x5/.git`, Naive: true},
		{Name: "nested-symlink", Try: `mkgit evil6; mkdir -p x6; ln -s ../evil6 x6/.git`, Naive: true},
		{Name: "nested-pointer", Try: `mkgit evil7; mkdir -p x7; echo 'gitdir: ../evil7' >x7/.git`, Naive: true},
		{Name: "nested-pointer-renamed", Try: `mkgit evil8; mkdir -p x8; echo 'gitdir: ../evil8' >x8/p; mv x8/p x8/.git`, Naive: true},
		{Name: "nested-pointer-linked", Try: `mkgit evil9; mkdir -p x9; echo 'gitdir: ../evil9' >x9/p; ln x9/p x9/.git`, Naive: true},
		{Name: "nested-pointer-held", Hold: `mkgit evil10; mkdir -p x10; $A open x10/.git -s 1 -- barrier $GO -- fdwrite -s 1 -x 'gitdir: ../evil10
'`, Naive: true},
		{Name: "nested-tmpfile", Try: `mkgit evil11; mkdir -p x11; $A tmpfile x11 x11/.git -x 'gitdir: ../evil11
'`},
		{Name: "nested-at", Try: `mkdir -p x12; mkgit mine12; $A opendir x12 -s 1 -- atrenamein .git mine12 -s 1`, Naive: true},
		{Name: "nested-moved-dir", Try: `mkdir -p x13; $A opendir x13 -s 1 -- rename x13 y13 -- atmkdir .git -s 1 -- atmkdir .git/objects -s 1 -- atmkdir .git/refs -s 1 -- atwrite .git/HEAD -s 1 -x 'ref: refs/heads/main
' -- atwrite .git/config -s 1 -x "$(full)"`, Naive: true},
		{Name: "nested-in-git", Try: `mkgit .git/refs/x14/.git; mkgit .git/logs/.git; mkgit .git/objects/x14/.git`},
		{
			Name: "nested-spelling", Try: `mkgit x15/.GIT; mkgit x16/.Git; mkgit x17/git~1; mkgit "x18/.git "; mkgit "x19/.git."; mkgit "$(printf 'x20/.g\342\200\214it')"`,
			Check: `[ -z "$(find . -iname .git -not -name .git -o -iname 'git~1' -o -iname '.git.' -o -iname '.git ')" ]`, Naive: true,
		},
		{Name: "nested-odd-name", Try: `mkgit "$(printf 'n\nl/.git')"; mkgit "$(printf 'n\377/.git')"; mkgit " /.git"; mkgit "-C/.git"`, Naive: true},
		{Name: "nested-stages", Try: `mkdir -p x21/.git; cd x21/.git; full >config; cd ..; mkdir -p .git/objects .git/refs; echo 'ref: refs/heads/main' >.git/HEAD`, Naive: true},
	}
	groups := []Group{
		{Name: "nested", Techniques: nested},
		{Name: "gitlink", Techniques: []Technique{
			{Name: "gitlink", Try: `N=x; mkgit x/.git` + gitlink, Naive: true},
		}},
		{Name: "gitlink-pointer", Techniques: []Technique{
			{Name: "gitlink-pointer", Try: `N=x; mkgit evil; mkdir -p x; echo 'gitdir: ../evil' >x/.git` + gitlink, Naive: true},
		}},
		{Name: "gitlink-gitdir", Techniques: []Technique{
			{Name: "gitlink-logs", Try: `N=.git/logs; mkgit .git/logs/.git` + gitlink},
		}},
		{
			Name: "nested-host", Setup: `
				git init -q ws/n && git -C ws/n commit -q --allow-empty -m n && mkdir ws/deep && git init -q ws/deep/r && git -C ws/deep/r commit -q --allow-empty -m r`,
			Techniques: []Technique{
				{Name: "nested-host-config", Try: `cfg >>n/.git/config`, Naive: true},
				{Name: "nested-host-hook", Try: `mkdir -p n/.git/hooks; hook | put n/.git/hooks/post-index-change`, Naive: true},
				{Name: "nested-host-lock", Hold: `$A open n/.git/config.lock -s 1 -- barrier $GO -- rename n/.git/config.lock n/.git/config -- fdwrite -s 1 -x "$(full)"`},
				{Name: "nested-host-rename", Try: `mkgit deep/mine; mv deep/r/.git deep/r/g; mv -T deep/mine deep/r/.git`, Naive: true},
				{Name: "nested-host-parent", Try: `mkdir -p mine-deep/r; mkgit mine-deep/r/.git; mv deep deep2; mv -T mine-deep deep`, Naive: true},
				{Name: "nested-host-moved", Try: `mv n n2; cfg >>n2/.git/config; mv n2 n`},
				{Name: "nested-host-worktree", Try: `cfg >n/.git/config.worktree; echo ../../evil >n/.git/commondir`, Check: `[ ! -e n/.git/commondir ]`},
			}, Broken: true,
		},
		{Name: "nested-later", Techniques: []Technique{
			{
				Name: "nested-later", Hold: `mkdir -p late; cd late; $A barrier $GO -- barrier /workspace/late/.git/config; cfg >>.git/config`,
				Host: `git init -q late`, After: `cfg >>late/.git/config; mkdir -p late/.git/hooks; hook | put late/.git/hooks/post-index-change`, Naive: true,
			},
			{Name: "nested-shadowed", Try: `mkgit s/.git`, Host: `rm -rf s; mkdir s; git init -q s`, After: `cfg >>s/.git/config`, Naive: true},
			{Name: "nested-host-moves", Try: `mkgit t/.git; mkgit t/u/.git`, Host: `mv t t2; mkdir t`, After: `mkgit t/.git; cfg >>t2/u/.git/config; mkgit t2/v/.git; mv t2/u t/u`},
		}},
	}
	return append(groups, bareGroups()...)
}

// bareGroups make directories that git takes for a bare repository, in every order.
func bareGroups() []Group {
	config := `printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ".."\n' >$D/config; cfg >>$D/config`
	steps := map[string]string{
		"h": `echo 'ref: refs/heads/main' >$D/HEAD`,
		"o": `mkdir -p $D/objects`,
		"r": `mkdir -p $D/refs`,
		"c": config,
	}
	var orders []Technique
	for i, order := range []string{"horc", "hroc", "ohrc", "orhc", "rhoc", "rohc", "chor", "corh"} {
		script := fmt.Sprintf("D=docs%d; mkdir -p $D", i)
		for _, s := range order {
			script += "; " + steps[string(s)]
		}
		orders = append(orders, Technique{Name: "bare-" + order, Try: script, Naive: true})
	}
	all := strings.Join([]string{steps["c"], steps["o"], steps["r"], steps["h"]}, "; ")
	moved := []Technique{
		{Name: "bare-moved", Try: `D=m1; mkdir -p $D; ` + all + `; mv m1 docs-m1`, Naive: true},
		{Name: "bare-moved-part", Try: `D=m2; mkdir -p $D p2; mkdir -p p2/refs; ` + steps["c"] + "; " + steps["o"] + "; " + steps["h"] + `; mv p2/refs m2/refs`, Naive: true},
		{Name: "bare-moved-head", Try: `D=m3; mkdir -p $D; ` + steps["c"] + "; " + steps["o"] + "; " + steps["r"] + `; echo 'ref: refs/heads/main' >m3/H; mv m3/H m3/HEAD`, Naive: true},
		{Name: "bare-linked-head", Try: `D=m4; mkdir -p $D; ` + steps["c"] + "; " + steps["o"] + "; " + steps["r"] + `; echo 'ref: refs/heads/main' >m4/H; ln m4/H m4/HEAD`, Naive: true},
		{Name: "bare-symlink-head", Try: `D=m5; mkdir -p $D; ` + steps["c"] + "; " + steps["o"] + "; " + steps["r"] + `; ln -s refs/heads/main m5/HEAD`, Naive: true},
		{Name: "bare-symlinks", Try: `D=m6; mkdir -p $D mo mr; ` + steps["c"] + "; " + steps["h"] + `; ln -s ../mo m6/objects; ln -s ../mr m6/refs`, Naive: true},
		{Name: "bare-exchange", Try: `D=m7; mkdir -p $D e7; ` + all + `; $A exchange m7 e7`, Naive: true},
		{Name: "bare-commondir", Try: `D=m8; mkdir -p $D c8/objects c8/refs; D=c8; ` + config + `; D=m8; ` + steps["h"] + `; echo ../c8 >m8/commondir`, Naive: true},
		{Name: "bare-commondir-first", Try: `D=m9; mkdir -p $D c9/objects c9/refs; D=c9; ` + config + `; D=m9; echo ../c9 >m9/commondir; ` + steps["h"], Naive: true},
		{Name: "bare-held-head", Hold: `D=m10; mkdir -p $D; ` + config + `; ` + steps["o"] + "; " + steps["r"] + `; $A open m10/HEAD -s 1 -- barrier $GO -- fdwrite -s 1 -x 'ref: refs/heads/main
'`},
		{Name: "bare-dir-moved", Try: `D=m11; mkdir -p $D/objects $D/refs; ` + config + `; $A opendir m11 -s 1 -- rename m11 docs-m11 -- atwrite HEAD -s 1 -x 'ref: refs/heads/main
'`, Naive: true},
		{Name: "bare-worktree-inside", Try: `D=m12; mkdir -p $D/worktree; printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = "worktree"\n' >$D/config; cfg >>$D/config; ` +
			steps["o"] + "; " + steps["r"] + "; " + steps["h"], Naive: true},
	}
	var inside []Technique
	for i, dir := range []string{"refs", "refs/heads", "logs", "objects", "objects/ab", "info", "lfs", "modules", "worktrees", "hooks", "branches"} {
		inside = append(inside, Technique{
			Name: "bare-in-" + strings.ReplaceAll(dir, "/", "-"), Naive: dir != "hooks" && dir != "logs" && dir != "worktrees",
			Try: fmt.Sprintf(`D=.git/%s/x%d; mkdir -p $D; `, dir, i) + all,
		})
	}
	whole := []Technique{
		{Name: "bare-refs-itself", Try: `D=.git/refs; ` + all, Naive: true},
		{Name: "bare-logs-itself", Try: `D=.git/logs; mkdir -p $D; ` + all, Naive: true},
		{Name: "bare-objects-itself", Try: `D=.git/objects; ` + all, Naive: true},
		{Name: "bare-info-itself", Try: `D=.git/info; mkdir -p $D; ` + all, Naive: true},
		{Name: "bare-moved-inside", Try: `D=mine-b; mkdir -p $D; ` + all + `; mv mine-b .git/refs/moved; mv mine-b .git/logs/moved`, Naive: true},
		{Name: "bare-at-root", Try: `D=.; ` + all},
	}
	return []Group{
		{Name: "bare-orders", Techniques: orders},
		{Name: "bare-moved", Techniques: moved},
		{Name: "bare-inside", Techniques: inside, Broken: true},
		{Name: "bare-itself", Techniques: whole, Broken: true},
		{
			Name: "bare-begun", Setup: `mkdir -p ws/docs/objects ws/spec/refs ws/spec/objects ws/site && echo x >ws/site/HEAD && echo 'ref: refs/heads/main' >ws/docs/HEAD && touch ws/docs/objects/k ws/spec/refs/k ws/spec/objects/k && cd ws && git add -A && git commit -qm names`,
			// The developer's own directories have parts of the shape.
			Techniques: []Technique{
				{Name: "bare-completed-refs", Try: `D=docs; ` + config + `; ` + steps["r"], Naive: true},
				{Name: "bare-completed-head", Try: `D=spec; ` + config + `; ` + steps["h"], Naive: true},
				{Name: "bare-completed-both", Try: `D=site; ` + config + `; ` + all, Naive: true},
			},
		},
		{Name: "bare-later", Techniques: []Technique{
			// The host completes what the agent began.
			{Name: "bare-host-head", Try: `D=l1; mkdir -p $D; ` + config + `; ` + steps["o"] + "; " + steps["r"], Host: `mkdir -p l1; echo 'ref: refs/heads/main' >l1/HEAD; mkdir -p l2/objects l2/refs; echo 'ref: refs/heads/main' >l2/HEAD`, After: `D=l2; ` + config},
		}},
		{Name: "bare-host", Setup: `git init -q --bare ws/b.git`, Techniques: []Technique{
			{Name: "bare-host-config", Try: `cfg >>b.git/config; printf '[core]\n\tbare = false\n\tworktree = .\n' >>b.git/config`, Naive: true},
			{
				Name: "bare-host-hooks", Try: `mkdir -p b.git/hooks; hook | put b.git/hooks/post-index-change; hook | put b.git/hooks/update`, Naive: true,
				Check: `git push -q "$PWD/b.git" HEAD:refs/heads/p >/dev/null 2>&1; [ ! -e "$C" ]`,
			},
			{Name: "bare-host-renamed", Try: `mv b.git b2; cfg >>b2/config; mv b2 b.git`},
		}},
	}
}

// indexGroups have an index that git would not write: what is checked out of it
// lands in a git directory.
func indexGroups() []Group {
	// $H is the blob of a hook, $F of a config.
	const blobs = `H=$($A blob .git "$(hook)
"); F=$($A blob .git "$(full)
"); `
	const publish = ` && cp mine-index .git/index.lock && mv .git/index.lock .git/index; `
	one := func(name, try string, naive bool) Technique {
		return Technique{Name: "index-" + name, Try: blobs + try, Naive: naive}
	}
	hooks := `100755:$H::.git/hooks/post-checkout 100755:$H::.git/hooks/post-index-change 100755:$H::.git/hooks/pre-commit`
	crafted := []Technique{
		one("hooks", `$A index mine-index 2 `+hooks+publish, true),
		one("config", `$A index mine-index 3 100644:$F::.git/config 100644:$F::.git/config.worktree 100644:$F::.git/modules/x/config`+publish, true),
		one("v4", `$A index mine-index 4 `+hooks+publish, true),
		one("skip-worktree", `$A index mine-index 3 100755:$H:s:.git/hooks/post-checkout 100755:$H::.git/hooks/post-index-change`+publish, true),
		one("spelling", `$A index mine-index 2 100755:$H::.GIT/hooks/post-checkout 100755:$H::git~1/hooks/post-checkout 100755:$H::x/.git/hooks/post-checkout 100644:$F::x/.git/config 100755:$H::./.git/hooks/post-checkout 100755:$H::.git//hooks/post-checkout`+publish, true),
		one("outside", `$A index mine-index 2 100644:$F::../out/victim-index-outside 100644:$F::../../out/victim-index-outside 100644:$F::$V`+publish, true),
		one("through-link", `L=$($A blob .git .git); $A index mine-index 2 120000:$L::link 100755:$H::link/hooks/post-checkout`+publish, false),
		one("nested", `M=$($A blob .git "ref: refs/heads/main
"); $A index mine-index 2 100644:$M::d/HEAD 100644:$F::d/config 100644:$M::d/objects/x 100644:$M::d/refs/x 100644:$M::x/.git/HEAD 100644:$M::x/.git/objects/x 100644:$M::x/.git/refs/x 100644:$F::x/.git/config`+publish, false),
		one("direct", `$A index .git/index 2 `+hooks, true),
		one("mmap", `$A index mine-index 2 `+hooks+` && $A copyrange mine-index .git/index`, false),
		one("split", `E=0000000000000001000000000000000000000000 # an empty bitmap
			$A index mine-shared 2 `+hooks+`; id=$(tail -c 20 mine-shared | od -An -tx1 | tr -d ' \n')
			cp mine-shared .git/tmp; mv .git/tmp .git/sharedindex.$id; cp mine-shared .git/sharedindex.$id
			$A index mine-index 2 +link=${id}$E$E`+publish, true),
		one("extension", `$A index mine-index 2 +zzzz=00 +ABCD=00 +sdir= 040000:4b825dc642cb6eb9a060e54bf8d69288fbee4904::.git/hooks/ `+hooks+publish, false),
		one("link", `$A index mine-index 2 `+hooks+`; rm -f .git/index.lock; ln mine-index .git/index.lock && mv .git/index.lock .git/index`, true),
		one("rename-in", `$A index mine-index 2 `+hooks+`; mv mine-index .git/index`, true),
		one("fsmonitor", `$A index mine-index 2 +FSMN=0000000200 100644:$H::README`+publish, false),
	}
	// Good at the moment of the rename, and then written through what stayed open.
	held := []Technique{{
		Name: "index-held-fd", Naive: true,
		Hold: blobs + `$A index mine-hi 2 ` + hooks + ` && $A index mine-hg 2 100644:$H::README && cp mine-hg .git/index.lock
			$A open .git/index.lock -s 1 -- rename .git/index.lock .git/index -- barrier $GO -- open mine-hi -s 2 -- copyrange mine-hi /proc/self/fd/1
			$A open .git/index -s 1 -- barrier $GO -- copyrange mine-hi .git/index`,
		After: blobs + `$A index mine-hi 2 ` + hooks + `; $A index mine-hg 2 100644:$H::README; cp mine-hg .git/index.lock
			exec 3<>.git/index.lock; mv .git/index.lock .git/index; cat mine-hi >&3`,
	}}
	alias := []Technique{{
		Name: "index-alias", Try: blobs + `$A index mine-ai 2 ` + hooks + `; $A index mine-ag 2 100644:$H::README; cp mine-ag alias; rm -f .git/index.lock
			ln alias .git/index.lock && mv .git/index.lock .git/index; cat mine-ai >alias`,
	}}
	// The index has what is missing for a bare repository: a checkout completes it.
	const part = `D=%s; mkdir -p $D; printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ".."\n' >$D/config; cfg >>$D/config; M=$($A blob .git "ref: refs/heads/main
"); R=$($A blob .git "one
three
"); `
	completes := []Technique{
		{
			Name: "index-completes-head", Try: replaceAll(part, "%s", "k1") + `mkdir -p k1/objects k1/refs; $A index mine-index 2 100644:$R::README 100644:$M::k1/HEAD 100644:$M::k2/refs/x 100644:$M::k3/HEAD 100644:$M::k3/refs/x 100644:$M::k3/objects/x` + publish,
			Check: `git checkout -- k1; cd k1 && git status >/dev/null 2>&1; [ ! -e "$C" ]`,
		},
		{
			Name: "index-completes-refs", Try: replaceAll(part, "%s", "k2") + `mkdir -p k2/objects; echo 'ref: refs/heads/main' >k2/HEAD`,
			Check: `git checkout -- k2; cd k2 && git status >/dev/null 2>&1; [ ! -e "$C" ]`,
		},
		{
			Name: "index-completes-all", Try: replaceAll(part, "%s", "k3"),
			Check: `git checkout -- k3; cd k3 && git status >/dev/null 2>&1; [ ! -e "$C" ]`,
		},
	}
	tree := []Technique{{
		Name: "tree", Try: blobs + `
			T=$($A blob .git "tree:100755 $H post-checkout
"); U=$($A blob .git "tree:40000 $T hooks
100644 $F config
"); R=$($A blob .git "tree:40000 $U .git
40000 $U .GIT
40000 $U git~1
"); K=$($A blob .git "commit:tree $R
author A <a@example.test> 1 +0000
committer A <a@example.test> 1 +0000

x"); mkdir -p .git/refs/heads; echo $K >.git/refs/heads/other; echo $K >.git/refs/heads/evil`,
		Check: `git checkout -f evil >/dev/null 2>&1; git checkout -f main >/dev/null 2>&1; [ ! -e "$C" ]`,
	}, {
		Name: "replace-ref", Try: blobs + `
			T=$($A blob .git "tree:100755 $H post-checkout
"); U=$($A blob .git "tree:40000 $T hooks
"); R=$($A blob .git "tree:40000 $U .git
"); K=$($A blob .git "commit:tree $R
author A <a@example.test> 1 +0000
committer A <a@example.test> 1 +0000

y"); mkdir -p .git/refs/replace; echo $K >.git/refs/replace/$(cat .git/refs/heads/main)`,
	}}
	return []Group{
		{Name: "index", Techniques: crafted, Broken: true, Each: true},
		{Name: "index-held-fd", Techniques: held, Broken: true},
		{Name: "index-alias", Techniques: alias, Broken: true},
		{Name: "index-completes", Techniques: completes, Broken: true},
		{Name: "crafted-trees", Techniques: tree, Broken: true},
	}
}
