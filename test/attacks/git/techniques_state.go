package git

import "strings"

// stateGroups are about what git keeps of a command that was not finished.
func stateGroups() []Group {
	const rebasing = `cd ws && git switch -qc topic HEAD~1 && echo topic >>README && git commit -qam topic && echo more >more && git add more && git commit -qm more && ! git rebase main >/dev/null 2>&1 && echo solved >README && git add README`
	todo := func(dir string) string {
		return `mkdir -p ` + dir + `; cd ` + dir + `
			id=$(cat /workspace/.git/refs/heads/main 2>/dev/null || sed -n 's/ .*main$//p' /workspace/.git/packed-refs | tail -n 1)
			echo refs/heads/main >head-name; echo $id >onto; echo $id >orig-head; : >interactive; : >quiet; echo 1 >msgnum; echo 1 >end; : >done
			printf 'exec %s\nexec %s\n' "$P" "$P" >git-rebase-todo; cp git-rebase-todo git-rebase-todo.backup; echo "$P" >gpg_sign_opt; echo "$P" >strategy`
	}
	return []Group{
		{Name: "rebase-planted", Broken: true, Techniques: []Technique{
			{Name: "rebase-planted", Try: todo(".git/rebase-merge"), Naive: true},
			{Name: "rebase-planted-moved", Try: `mkdir -p mine-rb; ` + replaceAll(todo("mine-rb"), "cd mine-rb", "cd /workspace/mine-rb") + `; cd ..; mv mine-rb .git/rebase-merge`},
		}},
		{Name: "rebase-stopped", Broken: true, Setup: rebasing, Techniques: []Technique{
			{Name: "rebase-stopped", Try: `printf 'exec %s\n' "$P" >>.git/rebase-merge/git-rebase-todo`, Naive: true},
			{Name: "rebase-stopped-rename", Try: `printf 'exec %s\n' "$P" >mine-todo; mv -f mine-todo .git/rebase-merge/git-rebase-todo`},
			{Name: "rebase-stopped-lock", Hold: `$A open .git/rebase-merge/git-rebase-todo.lock -s 1 -- fdwrite -s 1 -x "exec $P
" -- rename .git/rebase-merge/git-rebase-todo.lock .git/rebase-merge/git-rebase-todo -- barrier $GO`},
		}},
		{Name: "rebase-begun", Broken: true, Techniques: []Technique{
			// The host begins while the sandbox lives.
			{
				Name: "rebase-begun", Host: `git rebase --abort 2>/dev/null || true; git reset -q --hard; git switch -qf main; git branch -qD begun 2>/dev/null || true
					git switch -qc begun && echo topic >>README && git commit -qam topic && echo more >more && git add more && git commit -qm more
					git switch -q main && echo again >>README && git commit -qam again && git switch -q begun && ! git rebase main >/dev/null 2>&1 && [ -e .git/rebase-merge/git-rebase-todo ]`,
				After: `printf 'exec %s\n' "$P" >>.git/rebase-merge/git-rebase-todo`, Naive: true,
			},
		}},
		{Name: "am-planted", Broken: true, Techniques: []Technique{
			{
				Name: "am-planted", Try: `mkdir -p .git/rebase-apply; cd .git/rebase-apply; echo 1 >next; echo 1 >last; : >applying; echo t >threeway; printf 'From x\n\n---\n' >0001; echo x >final-commit; printf "GIT_AUTHOR_NAME='x'; %s\n" "$P" >author-script; echo f >sign; echo t >utf8; echo f >keep; echo f >scissors; echo "$P" >apply-opt; echo x >head-name`,
				Check: `[ ! -e .git/rebase-apply ]`,
			},
			{
				Name: "sequencer", Try: `mkdir -p .git/sequencer; printf 'exec %s\n' "$P" >.git/sequencer/todo; echo x >.git/sequencer/head; printf '[options]\n\tgpg-sign = %s\n' "$P" >.git/sequencer/opts`,
				Check: `[ ! -e .git/sequencer ]`, Naive: true,
			},
			{
				Name: "bisect", Try: `cd .git; echo "$P" >BISECT_RUN; echo main >BISECT_START; printf '%s\n' "$P" >BISECT_NAMES; printf 'git bisect start\n%s\n' "$P" >BISECT_LOG; printf 'bad\ngood\n' >BISECT_TERMS; echo x >BISECT_HEAD`,
				Check: `[ ! -e .git/BISECT_LOG ]`,
			},
		}},
		{Name: "rerere", Broken: true, Setup: `echo 'the secret' >secret`, Techniques: []Technique{
			// rerere copies the file that MERGE_RR names: any file of the user's.
			{
				Name: "rerere-leak", Try: `
				id=0123456789012345678901234567890123456789; mkdir -p .git/rr-cache/$id
				printf '<<<<<<<\na\n=======\nb\n>>>>>>>\n' >.git/rr-cache/$id/preimage
				printf '%s\t../secret\0' $id >.git/MERGE_RR`,
				Check: `! grep -rq 'the secret' .`,
			},
			{Name: "rerere-write", Try: `
				id=1123456789012345678901234567890123456789; mkdir -p .git/rr-cache/$id
				printf 'a\n' >.git/rr-cache/$id/preimage; echo evil >.git/rr-cache/$id/postimage
				printf '%s\t%s\0' $id "$V" >>.git/MERGE_RR`},
		}},
		{Name: "refs", Broken: true, Techniques: []Technique{
			{
				Name: "refs-traversal", Try: `id=$(cat .git/refs/heads/main); printf '%s refs/heads/../../config\n%s refs/heads/../../hooks/post-checkout\n' $id $id >>.git/packed-refs; echo 'ref: refs/heads/../../config' >.git/refs/heads/t1`,
				Check: `echo 'ref: refs/heads/main' >.git/HEAD; git update-ref refs/heads/t1 HEAD >/dev/null 2>&1; git config -l >/dev/null`,
			},
			{
				Name: "refs-outside", Try: `printf 'ref: %s\n' "$V" >.git/refs/heads/t2; echo 'ref: ../../out/victim-refs-outside' >.git/refs/heads/t3; echo 'ref: config' >.git/refs/heads/t4; echo 'ref: hooks/post-checkout' >.git/refs/heads/t5`,
				Check: `echo 'ref: refs/heads/main' >.git/HEAD; for r in t2 t3 t4 t5; do git update-ref refs/heads/$r HEAD >/dev/null 2>&1; git checkout -q -B $r >/dev/null 2>&1; done; git checkout -qf main 2>/dev/null; git config -l >/dev/null`,
			},
			{Name: "refs-in-objects", Try: `mkdir -p .git/objects/refs .git/refs/heads/hooks; hook | put .git/refs/heads/hooks/post-checkout`},
			{Name: "refs-option", Try: `mkdir -p .git/refs/heads; cp .git/refs/heads/main ".git/refs/heads/--upload-pack=$(basename "$C")"; cp .git/refs/heads/main .git/refs/heads/-x; printf '%s\tbranch x of --upload-pack=%s\n' "$(cat .git/refs/heads/main)" "$C" >.git/FETCH_HEAD`},
			{Name: "head-config", Try: `[ ! -e $GO ] || echo 'ref: config' >.git/HEAD`, Check: `echo 'ref: refs/heads/main' >.git/HEAD; git config -l >/dev/null`},
			{Name: "shallow", Try: `echo "$P" >.git/shallow.lock; rm -f .git/shallow.lock`},
			{Name: "editmsg", Try: `printf '%s\n' "$P" >.git/COMMIT_EDITMSG; printf '#!/bin/sh\n%s\n' "$P" >.git/MERGE_MSG`},
			{Name: "gc-log", Try: `echo 1 >.git/gc.pid; echo "$P" >.git/gc.log`},
		}},
		{Name: "other-names", Techniques: []Technique{
			{
				Name: "unknown-files", Try: `cd .git; cfg >gitweb.conf; cfg >config~; cfg >.gitconfig; cfg >description; hook >svn; mkdir -p fsmonitor--daemon annex hooks.d lost-found common; cfg >common/config; cfg >annex/config`,
				Check: `[ ! -e .git/annex ] && [ ! -e .git/common ] && [ ! -e .git/gitweb.conf ]`, Naive: true,
			},
			{Name: "lfs-config", Try: `cfg >.lfsconfig; mkdir -p .git/lfs; cfg >.git/lfs/config`},
		}},
	}
}

// linkGroups make git follow or open what is none of its files.
func linkGroups() []Group {
	// What the host appends to, writes or locks through a symbolic link.
	// git itself writes most of them by a lock and a rename; those that it opens
	// through the link are what naive mounts fall to.
	var links []Technique
	for _, l := range []struct {
		path  string
		naive bool
	}{
		{"logs/HEAD", true},
		{"logs/refs/heads/main", true},
		{"logs/refs/stash", false},
		{"COMMIT_EDITMSG", true},
		{"ORIG_HEAD", false},
		{"FETCH_HEAD", true},
		{"MERGE_MSG", false},
		{"MERGE_HEAD", false},
		{"AUTO_MERGE", false},
		{"SQUASH_MSG", false},
		{"packed-refs", false},
		{"refs/heads/linked", false},
		{"refs/tags/linked", false},
		{"gc.log", false},
		{"gc.pid", false},
		{"info/refs", false},
		{"objects/info/packs", false},
		{"objects/info/commit-graph", false},
		{"shallow", false},
		{"rr-cache", false},
	} {
		links = append(links, Technique{
			Name: "link-" + strings.ToLower(strings.ReplaceAll(l.path, "/", "-")), Naive: l.naive,
			Try:   `F=.git/` + l.path + `; mkdir -p "$(dirname $F)"; rm -f $F; ln -s "$V" $F; ln -s "$V" mine-$$; mv -fT mine-$$ $F; rm -f mine-$$`,
			Check: `[ ! -L .git/` + l.path + ` ]`,
		})
	}
	var dirs []Technique
	for _, d := range []string{"refs/heads/dir", "refs/tags", "logs", "objects/pack", "objects/ab", "objects/info", "info", "lfs", "rr-cache", "hooks", "refs/remotes/origin"} {
		dirs = append(dirs, Technique{
			Name: "linkdir-" + strings.ReplaceAll(d, "/", "-"),
			Try: `F=.git/` + d + `; mkdir -p "$(dirname $F)"; [ -L $F ] || mv $F $F.old; ln -s "$(dirname "$V")" $F; [ -e $F ] || [ -L $F ] || mv $F.old $F
				ln -s "$(dirname "$V")" mine-d$$; $A exchange mine-d$$ $F; rm -rf mine-d$$`,
			Check: `[ ! -L .git/` + d + ` ]`, Naive: d != "hooks",
		})
	}
	dirs[0].Check = `[ -z "$(find "$(dirname "$V")" -name '*.lock' -o -name 'pack*' -o -name 'tmp_*')" ] && ` + dirs[0].Check
	fifos := func(paths ...string) []Technique {
		var list []Technique
		for _, p := range paths {
			name := "fifo-" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(p, ".git/"), "/", "-"))
			list = append(list, Technique{
				Name: name, Check: `[ ! -p ` + p + ` ]`, Naive: true,
				Try: `F=` + p + `; mkdir -p "$(dirname $F)"; mkfifo $F || { mv $F $F.gone; mkfifo $F; }; mkfifo mine-f$$; mv -f mine-f$$ $F; rm -f mine-f$$`,
			})
		}
		return list
	}
	group := func(name string, broken bool, list []Technique) Group {
		return Group{Name: name, Techniques: list, Broken: broken}
	}
	heads := []Technique{
		{Name: "head-symlink", Try: `[ ! -e $GO ] || { rm -f .git/HEAD; ln -s "$V" .git/HEAD; ln -s "$V" mine-h; mv -fT mine-h .git/HEAD; }`, Check: `[ ! -L .git/HEAD ]`, Naive: true},
		{Name: "head-symlink-ref", Try: `[ ! -e $GO ] || { ln -s refs/heads/other mine-hr; mv -fT mine-hr .git/HEAD; }`, Check: `[ ! -L .git/HEAD ]`},
		{Name: "link-index", Try: `[ ! -e $GO ] || { ln -s "$V" mine-ix; mv -fT mine-ix .git/index; }`, Check: `[ ! -L .git/index ]`, Naive: true},
		{Name: "objects-symlink", Try: `[ ! -e $GO ] || { mv .git/objects .git/o2; ln -s ../mine-objects .git/objects; }`, Check: `[ ! -L .git/objects ]`, Naive: true},
		{Name: "refs-symlink", Try: `[ ! -e $GO ] || { mv .git/refs .git/r2; ln -s ../mine-refs .git/refs; }`, Check: `[ ! -L .git/refs ]`, Naive: true},
	}
	linksGroup := group("links", true, links)
	return []Group{
		linksGroup,
		group("link-dirs", true, dirs),
		{Name: "link-heads", Techniques: heads, Broken: true, Each: true},
		group("fifos", true, fifos(".git/MERGE_HEAD", ".git/MERGE_MODE", ".git/packed-refs", ".git/config.worktree", ".git/info/attributes", ".git/info/sparse-checkout",
			".git/refs/heads/fifo", ".git/objects/info/alternates", ".git/objects/info/commit-graph", ".git/gc.pid", ".git/gc.log", ".git/shallow", ".git/ORIG_HEAD", ".git/commondir", ".git/logs/refs/stash", ".git/refs/stash",
			".git/CHERRY_PICK_HEAD", ".git/MERGE_RR", ".git/BISECT_LOG", ".git/rebase-merge/head-name", ".git/sequencer/todo", ".git/info/grafts")),
		group("fifo-head", true, fifos(".git/HEAD", ".git/index", ".git/logs/HEAD", ".git/COMMIT_EDITMSG", ".git/FETCH_HEAD")),
		// git opens these of the worktree.
		group("fifo-worktree", true, fifos("src/.gitignore", "src/.gitattributes", ".gitmodules", "x/.git", ".mailmap")),
		{Name: "special-files", Techniques: []Technique{
			{Name: "setuid", Try: `cp $A su; chmod 6755 su; $A write su2 -x x -- setuid su2; mkdir -p sg; chmod 2777 sg`, Check: `[ -z "$(find . -type f -perm /6000)" ]`, Naive: true},
			{Name: "setuid-git", Try: `cp .git/HEAD .git/refs/heads/s; chmod 6777 .git/refs/heads/s .git/HEAD .git/config`, Check: `[ -z "$(find .git -perm /6000 -type f)" ]`},
			{Name: "device", Try: `mknod null c 1 3; mknod .git/refs/heads/dev c 1 3; mknod sda b 8 0; mknod .git/config.worktree c 1 3`, Check: `[ -z "$(find . -type c -o -type b)" ]`},
			{Name: "sockets", Try: `$A socket .git/refs/heads/sock -- socket .git/config.worktree -- socket .git/fsmonitor--daemon.ipc`, Check: `[ -z "$(find .git -type s)" ]`},
		}},
	}
}

// replaceGroups are about .git as a whole.
func replaceGroups() []Group {
	const rebuild = `[ -e .g2 ] || { mkgit mine-g; mv .git .g2; mv -T mine-g .git; cp -a .g2/HEAD .g2/refs .git/; }; full >.git/config`
	return []Group{
		{Name: "replace-rename", Broken: true, Techniques: []Technique{{Name: "replace-rename", Try: rebuild, Naive: true}}},
		{Name: "replace-exchange", Broken: true, Techniques: []Technique{{Name: "replace-exchange", Try: `mkgit mine-g; $A exchange mine-g .git`}}},
		{Name: "replace-remove", Broken: true, Techniques: []Technique{{Name: "replace-remove", Try: `rm -rf .git; mkgit .git`}}},
		{Name: "replace-pointer", Broken: true, Techniques: []Technique{
			{Name: "replace-pointer", Try: `mkgit evil; mv .git .g2; echo 'gitdir: evil' >.git`, Naive: true},
			{Name: "replace-symlink", Try: `mkgit evil2; mv .git .g3; ln -s evil2 .git`},
		}},
		{Name: "replace-workspace", Broken: true, Techniques: []Technique{
			{Name: "replace-workspace", Try: `cd /; mkdir -p /ws2; mkgit /ws2/.git; mv /workspace /ws3; mv /ws2 /workspace; mount --bind /ws2 /workspace; mount -t tmpfs none /workspace/.git; mkgit /workspace/.git`},
			{Name: "replace-unmount", Try: `cd /; umount -l /workspace; mkdir -p /workspace; mkgit /workspace/.git; cd /workspace && mkgit .git`},
		}},
		{Name: "host-removes", Broken: true, Techniques: []Technique{
			{
				Name: "host-removes", Host: `rm -rf .git`, After: `mkgit .git; for i in 1 2 3 4 5; do mkgit .git && break; sleep 0.2; done`, Naive: true,
				Check: `[ ! -e .git ]`,
			},
			{Name: "host-removes-held", Hold: `$A opendir . -s 1 -- barrier $GO; while [ -e .git/HEAD ]; do sleep 0.05; done; $A opendir . -s 1 -- atmkdir .git -s 1; mkgit .git`, Naive: true},
		}},
		{Name: "host-moves", Broken: true, Techniques: []Technique{
			{Name: "host-moves", Host: `mv .git ../saved.git`, After: `mkgit .git; mkgit mine-g; mv mine-g .git`, Naive: true, Check: `[ ! -e .git ]`},
			{Name: "host-moves-dir", Hold: `$A opendir .git -s 1 -- barrier $GO -- barrier /workspace/never & while [ -e .git/HEAD ]; do sleep 0.05; done; cd /proc/$!/fd/3 2>/dev/null && cfg >>config`},
			{
				Name: "host-moves-cwd", Hold: `cd .git; while [ -e /workspace/.git/HEAD ]; do sleep 0.05; done; cfg >>config; mkdir -p hooks; hook | put hooks/post-checkout; echo ../evil >commondir`,
				Check: `! grep -q fsmonitor ../saved.git/config && [ ! -e ../saved.git/commondir ] && [ ! -e ../saved.git/hooks/post-checkout ]`,
			},
			{Name: "host-moves-fd", Hold: `$A open .git/config -s 1 -- openread .git/config -s 2 -- barrier $GO -- fdwrite -s 1 -x "$(full)" -- fdreopen -s 2 -x "$(full)"`, Check: `! grep -q fsmonitor ../saved.git/config`},
		}},
		{Name: "host-moves-back", Broken: true, Techniques: []Technique{
			{
				Name: "host-moves-back", Hold: `while [ -e .git/HEAD ]; do sleep 0.01; done; for i in 1 2 3 4 5; do mkgit .git; cfg >>.git/config; done`, Host: `mv .git ../saved.git; sleep 1; mv -T ../saved.git .git 2>/dev/null || { cp -a ../saved.git/. .git/; }`,
				After: `cfg >>.git/config; cfg >.git/config.worktree; mkdir -p .git/hooks; hook | put .git/hooks/post-index-change; mkgit evil; echo ../evil >.git/commondir`, Naive: true,
			},
		}},
		{Name: "host-reinit", Broken: true, Techniques: []Technique{
			{
				Name: "host-reinit", Host: `mv .git ../old.git; git init -q -b main; git add -A; git commit -qm again`,
				After: `cfg >>.git/config; mkdir -p .git/hooks; hook | put .git/hooks/post-index-change; cfg >.git/config.worktree`, Naive: true,
			},
		}},
		{Name: "not-a-repository", Broken: true, Workspace: "plain", Setup: `mkdir plain && echo x >plain/README`, Techniques: []Technique{
			{Name: "plain-init", Try: `mkgit .git`, Naive: true},
			{Name: "plain-bare", Try: `printf '[core]\n\tbare = false\n\tworktree = .\n' >config; cfg >>config; mkdir -p objects refs; echo 'ref: refs/heads/main' >HEAD`},
			{Name: "plain-later", Host: `[ -e .git ] || git init -q; git add README; git commit -qm x`, After: `cfg >>.git/config`},
		}},
		{Name: "subdirectory", Broken: true, Workspace: "ws/src", Techniques: []Technique{
			{Name: "sub-init", Try: `mkgit .git`, Check: `[ "$(git rev-parse --show-toplevel)" = "$(dirname "$PWD")" ]`, Naive: true},
			{Name: "sub-pointer-up", Try: `mkgit evil; echo 'gitdir: evil' >.git`},
			{Name: "sub-up", Try: `cfg >>../.git/config; cd ..; cfg >>.git/config`},
		}},
	}
}

// fileGroups are about files that other programs than git run.
func fileGroups() []Group {
	task := `{ printf '{"tasks":[{"command":"%s","runOptions":{"runOn":"folderOpen"}}]}\n' "$P"; }`
	names := func(path string) string { return `mkdir -p "$(dirname ` + path + `)"; ` + task + ` >` + path }
	return []Group{
		{Name: "masks", Techniques: []Technique{
			{Name: "vscode", Try: names(".vscode/tasks.json"), Check: `[ ! -e .vscode/tasks.json ]`},
			{Name: "idea", Try: names(".idea/workspace.xml"), Check: `[ ! -e .idea/workspace.xml ]`, Naive: true},
			{Name: "vscode-deep", Try: names("pkg/.vscode/tasks.json"), Check: `[ ! -e pkg/.vscode/tasks.json ]`, Naive: true},
			{
				Name: "vscode-renamed", Try: `mkdir -p mine-v; ` + task + ` >mine-v/tasks.json; mv -T mine-v pkg/v; mv -T pkg/v pkg2/.vscode; mkdir -p pkg2; mkdir -p mine-v; ` + task + ` >mine-v/tasks.json; mv mine-v pkg2/.vscode`,
				Check: `[ ! -e pkg2/.vscode/tasks.json ]`, Naive: true,
			},
			{Name: "vscode-symlink", Try: `mkdir -p mine-vs pkg3; ` + task + ` >mine-vs/tasks.json; ln -sfn ../mine-vs pkg3/.vscode; rm -rf .vscode; ln -sfn mine-vs .vscode`, Check: `[ ! -L pkg3/.vscode ] && [ ! -L .vscode ]`, Naive: true},
			{
				Name: "vscode-spelling", Try: names("pkg6/.VSCode/tasks.json") + `; ` + names("pkg6/.Idea/x.xml") + `; ` + names(`"$(printf 'pkg6/.vs\342\200\214code/tasks.json')"`),
				Check: `[ -z "$(find . -ipath '*/pkg6/.vscode*' -o -ipath '*/pkg6/.idea*' -o -name '.vs?*code')" ]`, Naive: true,
			},
			{Name: "vscode-link", Try: task + ` >mine-t; mkdir -p pkg4/.vscode; ln mine-t pkg4/.vscode/tasks.json`, Check: `[ ! -e pkg4/.vscode/tasks.json ]`, Naive: true},
			{Name: "vscode-parent", Try: `mkdir -p mine-p/x/.vscode; ` + task + ` >mine-p/x/.vscode/tasks.json; mv mine-p pkg5`, Check: `[ ! -e pkg5/x/.vscode/tasks.json ]`, Naive: true},
			{Name: "no-stub", Try: `true`, Check: `[ ! -e .vscode ] && [ ! -e .idea ] && [ ! -e lazaret.toml ]`},
			{Name: "configuration", Try: `printf '[general]\n# %s\n' "$P" >lazaret.toml; echo "# $P" >mine-c; mv -f mine-c lazaret.toml; ln -sf mine-c2 lazaret.toml; mkfifo lazaret.toml`, Check: `[ ! -e lazaret.toml ] && [ ! -L lazaret.toml ]`, Naive: true},
		}},
		{
			Name: "masks-tracked", Setup: `
				cd ws && mkdir .vscode && echo '{"mine":1}' >.vscode/settings.json && git add -A && git commit -qm editor
				git switch -q other && git merge -q --no-edit main && echo '{"mine":2}' >.vscode/settings.json && git commit -qam theirs && git switch -q main`,
			Techniques: []Technique{
				{
					Name: "mask-read", Try: `if grep -q mine .vscode/settings.json 2>/dev/null; then :; fi; ` + task + ` >.vscode/settings.json; rm -f .vscode/settings.json; ` + task + ` >.vscode/tasks.json`,
					Check: `git checkout -qf main && grep -qx '{"mine":[12]}' .vscode/settings.json && [ ! -e .vscode/tasks.json ]`,
				},
				{Name: "mask-deletion", Try: `rm -rf .vscode`, Check: `git ls-tree --name-only main .vscode/ | grep -q settings.json`},
			},
		},
	}
}
